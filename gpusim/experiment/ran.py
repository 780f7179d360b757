"""From a result back to the program that ran, and to the machine."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import numpy as np

from gpusim.base.errors import GpusimError, ResultError
from gpusim.base.yaml.find import find, find_run
from gpusim.base.yaml.values import machine as read_machine
from gpusim.experiment import machine_of
from gpusim.machine.kernels.durations import load_own_times
from gpusim.machine.kernels.own_times import OwnTimes
from gpusim.machine.profile import Profile, changed
from gpusim.machine.topology import build
from gpusim.policies.registry import SHIPPED, Registry
from gpusim.programs import transforms
from gpusim.programs.ranks.files import load_ranks
from gpusim.programs.ranks.layout import AS_RECORDED
from gpusim.programs.ranks.recorded import RankPrograms
from gpusim.results.result import Result
from gpusim.trace.files import load_trace
from gpusim.trace.trace import Trace


def load_trace_of(result: Result, base: Path, other: Path | None = None, own: Registry = SHIPPED) -> Trace:
    """The trace that a run replayed, found from its results folder; `other` is where it is now, `own` a user's transforms.

    Of ranks it is the program that they divided.
    """
    chain = str(result.spec.get("transform", "none"))
    if result.ranks and not result.beside:
        chain, _ = transforms.around_ranks(chain, own)
    file, wanted = find("trace", str(other or result.spec["trace"]), base), str(result.spec.get("trace_hash", ""))
    return _load(file, chain, wanted, own)


def load_source_of(
    result: Result, base: Path, other: Path | None = None, own: Registry = SHIPPED
) -> Trace | RankPrograms:
    """The same, also of a run of programs that were recorded on many ranks."""
    if result.spec.get("parallel") != AS_RECORDED:
        return load_trace_of(result, base, other, own)
    return load_ranks(find_run(str(other or result.spec["trace"]), base))


def program_of(result: Result, base: Path, own: Registry = SHIPPED) -> Trace | None:
    """The same of a run with its log; None of a managed program, whose steps are those of no trace, and of many ranks."""
    if result.spec.get("parallel") == AS_RECORDED:
        return None
    if result.pages is not None and not (result.pages.get("step_op", np.zeros(0)) >= 0).any():
        return None
    return load_trace_of(result, base, own=own)


def load_machine_of(result: Result, base: Path, known: Profile | None = None) -> Profile:
    """The machine that a run was on, `known` or found from its results folder, with the host memory that it was given."""
    text = str(result.spec["profile"])
    found = known or _gpu(text, base)
    given = result.spec.get("host_memory")
    return found if given is None else changed(found, "host.capacity", given)


def _gpu(text: str, base: Path) -> Profile:
    """Of the machine that a word means, the first of its GPUs."""
    several = build.file_of(text, base)
    return machine_of.gpu(several or find("profile", read_machine(text)[0], base), text)


def own_times_of(result: Result, profile: Profile) -> OwnTimes | None:
    """The user's own measured times of kernels that a run used; None without.  ResultError when their file is gone."""
    if (table := result.spec.get("kernel_times")) is None:
        return None
    if not Path(table).is_file():
        raise ResultError("the table of kernel times that ran is not there, and without it no time can be checked", table)
    return load_own_times(Path(table), profile)


@lru_cache(maxsize=2)
def _load(file: Path, chain: str, wanted: str, own: Registry) -> Trace:
    """The trace in the file, transformed unless it already is what ran."""
    trace = load_trace(file)
    if trace.content_hash == wanted:
        return trace
    try:
        transforms.check(chain, own)
    except GpusimError as error:
        raise ResultError(error.message, hint="name the file that has it: --use FILE") from None
    return transforms.apply(trace, chain, own)
