"""The programs and machines of runs, for figures that need more than results: found by what the runs say of themselves."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from gpusim.base.errors import GpusimError
from gpusim.experiment.ran import load_machine_of, load_trace_of
from gpusim.machine.profile import Profile
from gpusim.results.result import Result
from gpusim.trace.trace import Trace


@dataclass(frozen=True, eq=False)
class RanProgram:
    """What a run replayed, on which machine; None where it is gone, or is a managed program, which has no trace."""

    trace: Trace | None
    profile: Profile | None


def programs(results: Iterable[Result], base: Path = Path()) -> list[RanProgram]:
    """Of each result; `base` is the results folder from which files are looked for."""
    return [RanProgram(_trace(result, base), _profile(result, base)) for result in results]


def _trace(result: Result, base: Path) -> Trace | None:
    if result.program is not None:
        return result.program
    try:
        found = load_trace_of(result, base)
    except GpusimError:
        return None
    return found if found.content_hash == result.spec.get("trace_hash", found.content_hash) else None


def _profile(result: Result, base: Path) -> Profile | None:
    try:
        return load_machine_of(result, base)
    except GpusimError:
        return None
