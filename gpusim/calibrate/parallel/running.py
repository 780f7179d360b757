"""A published step simulated: all ranks of it, or one of each class of equal ranks where there are many."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from gpusim.calibrate.parallel import programs
from gpusim.calibrate.parallel.cases import ParallelCase
from gpusim.engine.run.folded import simulate_folded
from gpusim.engine.run.ranks import simulate_ranks
from gpusim.machine.collectives.times import CollectiveTimes
from gpusim.machine.kernels.alone import alone
from gpusim.machine.kernels.durations import durations
from gpusim.machine.topology import build
from gpusim.machine.topology.transfers import LinkFlow
from gpusim.programs.ranks.placement import placed
from gpusim.results.result import Result
from gpusim.trace.trace import Trace
from gpusim.trace.workload import build as workload

MOST = 8
"""Ranks that are all simulated; of more, one of each class."""
_ROOM = 1 << 44  # bytes of device memory: only time is asked


@dataclass(frozen=True)
class StepTime:
    """Seconds of a step, and of its parts on the slowest rank.

    kernels   kernels, added up
    host      time for which the GPU waited for the host
    """

    step: float
    kernels: float
    host: float

    @property
    def exposed(self) -> float:
        """What is left: exchanges that no kernel hides, and pipeline bubbles."""
        return self.step - self.kernels - self.host

    def __sub__(self, other: StepTime) -> StepTime:
        return self.ahead(other, -1)

    def ahead(self, other: StepTime, times: float) -> StepTime:
        """This one and so many times the other."""
        pairs = zip((self.step, self.kernels, self.host), (other.step, other.kernels, other.host), strict=True)
        return StepTime(*(mine + times * yours for mine, yours in pairs))


def simulated(case: ParallelCase, most: int = MOST) -> StepTime:
    """The time of a step of the case.

    It is the third one's, since the first makes the optimizer's state.  Of many microbatches, a step's time goes on in a
    straight line from where all stages of a pipeline are busy: two numbers of them are simulated.
    """
    stages = case.degrees.pipeline
    few, more = (2, 3) if stages == 1 else (stages, 2 * stages)
    if case.microbatches <= more:
        return _third(case, case.microbatches, most)
    at = _third(case, few, most)
    slope = _third(case, more, most) - at
    return at.ahead(slope, (case.microbatches - few) / (more - few))


def _third(case: ParallelCase, microbatches: int, most: int) -> StepTime:
    traces = programs.stages(case, microbatches)
    return _all(case, traces, most) - _all(case, [programs.without_last(trace) for trace in traces], most)


def _all(case: ParallelCase, stages: Sequence[Trace], most: int) -> StepTime:
    """Of all steps of these programs."""
    ranks = _run(case, stages, most)
    last = max(ranks, key=lambda rank: rank.metrics["makespan_ns"])
    host = sum(last.metrics[f"stall_{cause}_ns"] for cause in ("launch", "sync", "alloc"))
    return StepTime(*(float(part) / 1e9 for part in (last.metrics["makespan_ns"], last.metrics["compute_busy_ns"], host)))


def _run(case: ParallelCase, stages: Sequence[Trace], most: int) -> list[Result]:
    collectives, layout = _collectives(case.machine), case.degrees
    gpus = placed(collectives, layout.ranks)
    profile = collectives.machine.profile(gpus[0])
    works = [workload(trace, durations(alone(trace, ("copies", "sms")), profile).ns) for trace in stages]

    def flow(kind: Any, size: int, group: Sequence[str]) -> LinkFlow:
        return collectives.of(kind, group, size).flow

    choices: dict[str, Any] = {"capacity_bytes": _ROOM}
    if layout.ranks > most:
        return simulate_folded(works, [profile] * layout.pipeline, collectives.machine, gpus, layout, flow, **choices)
    each = [works[layout.place(rank)[2]] for rank in range(layout.ranks)]
    return simulate_ranks(each, [profile] * len(each), collectives.machine, gpus, layout.members, flow, **choices)


@lru_cache(maxsize=4)
def _collectives(machine: str) -> CollectiveTimes:
    return CollectiveTimes(build.load(machine))
