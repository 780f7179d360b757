"""What an experiment asks of its traces that they cannot answer: refused with the reason, or left out of the results."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from gpusim.base.errors import Problem
from gpusim.base.yaml.find import is_managed, is_of_ranks
from gpusim.base.yaml.values import NONE
from gpusim.experiment.spec import AS_RECORDED, RunSpec
from gpusim.machine.chain import lends
from gpusim.programs.ranks.files import load_ranks
from gpusim.programs.ranks.layout import AS_RECORDED as AS_RANKED
from gpusim.programs.ranks.recorded import RankPrograms
from gpusim.results.metrics import METRICS
from gpusim.trace.answers import NEEDS, Answers, answers, instead, lacking, unanswered
from gpusim.trace.files import load_meta, load_trace

if TYPE_CHECKING:
    from gpusim.experiment.load import Loaded

ALL = Answers(**dict.fromkeys(NEEDS, True))
_MOVING = ("evict", "prefetch", "plan", "release")  # kinds of policy that ask which tensors are used next
_GAPS = {"allocations", "frees", "accesses", "operators", "kernel times", "flops"}  # words of a trace's `lacks`


def of_file(file: Path) -> Answers:
    """What the recorded trace, or the managed program, in this file can answer.  Raises TraceError."""
    if is_of_ranks(file):
        return read_ranks(file).answers
    return ALL if is_managed(file) else _of_file(file, file.stat().st_mtime_ns)


def read_ranks(file: Path) -> RankPrograms:
    """The programs of many ranks in a file, kept for the runs of this process that need them next.  Raises TraceError."""
    return _ranks(file, file.stat().st_mtime_ns)


@lru_cache(maxsize=4)
def _ranks(file: Path, stamp: int) -> RankPrograms:
    return load_ranks(file)


@lru_cache(maxsize=64)
def _of_file(file: Path, stamp: int) -> Answers:
    rows, meta = load_meta(file)
    # Of a recording without gaps the header says enough: a large one need not be read to find that its runs are all there.
    if all(rows.values()) and meta.get("lacks") is not None and not _GAPS & set(meta["lacks"]):
        return ALL
    return answers(load_trace(file))


def problems(loaded: Loaded) -> list[Problem]:
    """Whatever the experiment asks by name of a trace that cannot answer it.  Raises TraceError for one that is damaged."""
    return [problem for name, file in loaded.traces.items() for problem in _asked(loaded, name, of_file(file))]


def _asked(loaded: Loaded, name: str, can: Answers) -> Iterator[Problem]:
    e = loaded.experiment

    def said(path: tuple[str | int, ...], what: str, need: str, way: str = "") -> Problem:
        hint = instead(can, need) + (f"; {way}" if way else "")
        return loaded.document.problem(path, f"{what} cannot be told: {lacking(name, need)}", hint)

    if not can.accesses and not can.allocator and not (can.times and is_of_ranks(loaded.traces[name])):
        yield said(("trace", e.trace.index(name)), "what is in memory", "allocator")
        return
    if not can.accesses:
        said_of = loaded.document.data.get("policies") or {}
        for kind in _MOVING:
            chosen = getattr(e.policies, kind)
            moving = [str(policy) for policy in chosen if policy != NONE]
            if kind in said_of and moving:
                leave = f"--set policies.{kind}=none asks what fits"
                yield said(("policies", kind), f"what {' or '.join(moving[:2])} costs", "accesses", leave)
        for key, plain in (("unified", NONE), ("transform", AS_RECORDED)):
            if any(value != plain for value in getattr(e, key)):
                yield said((key,), f"what `{key}` changes", "accesses")
    if e.uncertainty.samples and not can.times:
        yield said(("uncertainty", "samples"), "what sampled machines change", "times", "leave out the uncertainty")


def answerable(spec: RunSpec, can: Answers) -> RunSpec:
    """The run as far as its trace can answer it: without accesses nothing is evicted, without lenders there is no pool."""
    if spec.pool != NONE and not lends(spec.tiers):
        spec = replace(spec, pool=NONE)
    return spec if can.accesses or spec.unified != NONE else replace(spec, evict=NONE)


def as_ranked(spec: RunSpec, file: Path) -> RunSpec:
    """The run of a program that was recorded on many ranks says so."""
    return replace(spec, parallel=AS_RANKED) if is_of_ranks(file) else spec


def told(loaded: Loaded) -> list[str]:
    """A sentence for each trace of which not everything is answered."""
    found = []
    for name, file in loaded.traces.items():
        can = of_file(file)
        found += [unanswered(name, can.missing)] if can.missing else []
    return found


def answered(numbers: Mapping[str, int | float], can: Answers) -> dict[str, int | float]:
    """Metrics or bounds without those that the trace cannot answer."""
    return {name: value for name, value in numbers.items() if all(getattr(can, need) for need in METRICS[name].needs)}
