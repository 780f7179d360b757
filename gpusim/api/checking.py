"""The referee, asked from Python."""

from __future__ import annotations

from pathlib import Path
from typing import Any, overload

from gpusim import referee
from gpusim.api.grids import Results
from gpusim.api.result import Result
from gpusim.api.words import Named
from gpusim.base.errors import ResultError
from gpusim.experiment.beside_checked import check_beside
from gpusim.experiment.ran import load_machine_of, load_source_of, own_times_of
from gpusim.experiment.ranks_checked import check_ranks, collectives_for
from gpusim.machine.collectives.times import CollectiveTimes
from gpusim.machine.profile import Profile
from gpusim.machine.topology.topology import Topology
from gpusim.policies.registry import SHIPPED, Registry
from gpusim.programs.ranks.recorded import RankPrograms
from gpusim.referee import Report, pages
from gpusim.results import result as kept
from gpusim.trace.trace import Trace


@overload
def check(result: Result, *, use: Any = ()) -> Report: ...
@overload
def check(result: Results, *, use: Any = ()) -> list[Report]: ...
def check(result: Result | Results, *, use: Any = ()) -> Report | list[Report]:
    """Recompute a result from its event log, with none of the simulator's code.

    `ok` of the report is True, False (then `violations` says what is wrong), or None where the run kept no log; of the
    results of a grid, a report each; of ranks one of all of them.  Raises TraceError when the trace that ran is gone.

    use  files with policies of your own, or the decorated objects: one of kind tenants is asked again for each of its turns

    >>> import gpusim
    >>> result = gpusim.simulate("resnet50-train", on="a100-pcie-40gb", memory="60 %", log=True, bounds=False)
    >>> gpusim.check(result).ok
    True
    """
    own = Named(use).registry
    if isinstance(result, Results):
        return [
            pages.check(run) if "unified" in run.spec else _checked(run, result.trace_of(run), result.folder, own=own)
            for run in (one.whole for one in result)
        ]
    if "unified" in result.spec:
        return pages.check(result.whole)
    if "gpu" in result.spec:
        raise ResultError("a rank cannot be checked alone: when it goes on follows from all", hint="check all of them")
    base = result.folder or Path()
    ran = result.source if isinstance(result.source, Trace | RankPrograms) else None
    source = load_source_of(result.value, base) if ran is None else ran
    return _checked(result.whole, source, base, result.machine, own)


def _checked(
    run: kept.Result, program: Trace | RankPrograms, base: Path, known: Profile | Topology | None = None,
    own: Registry = SHIPPED,
) -> Report:  # fmt: skip
    if run.beside:
        return check_beside(run, base, own)
    if run.ranks:
        times = CollectiveTimes(known) if isinstance(known, Topology) else collectives_for(run, base)
        return check_ranks(run, program, times)
    assert isinstance(program, Trace), "a run of many ranks has some"
    machine = load_machine_of(run, base, None if isinstance(known, Topology) else known)
    return referee.check(run, program, machine, own_times_of(run, machine))
