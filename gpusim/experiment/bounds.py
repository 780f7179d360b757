"""What a run is measured against that follows from its program alone, without a simulation."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import numpy as np

from gpusim.engine.run.bounds import swap_in_bound
from gpusim.engine.run.plans import timed
from gpusim.machine.profile import Profile
from gpusim.policies.place.parts.packing.plan import static_bounds
from gpusim.results.result import Result
from gpusim.trace.codec import swap_codec
from gpusim.trace.grain import TENSOR, chunked, parse
from gpusim.trace.trace import Trace
from gpusim.trace.workload import Workload


class Bounds:
    """The bounds of a program, kept for its runs."""

    def __init__(self, work: Workload) -> None:
        self.work = work
        self._swap_in: dict[int, int] = {}

    def at(self, capacity: int) -> dict[str, int | float]:
        """All bounds with this much memory, under the names of results.metrics."""
        found: dict[str, int | float] = {"bound_swap_in_bytes": self.swap_in(capacity), "bound_live_bytes": self.work.live_peak}
        planned = _static_plan(self.work.trace)
        return found if planned is None else {**found, "bound_plan_bytes": planned}

    def swap_in(self, capacity: int) -> int:
        """The least bytes that any eviction policy brings in over the link."""
        if capacity not in self._swap_in:
            codec, least = swap_codec(self.work.trace), swap_in_bound(self.work, capacity)
            self._swap_in[capacity] = int(codec.on_wire(least)) if codec else least
        return self._swap_in[capacity]


def of_run(run: Result, given: Bounds, profile: Profile) -> Bounds:
    """The bounds of what ran: the given program, or what a plan policy made of it.

    A plan may drop what the given program keeps, and leave with the tiers below what kernels then read there: less comes in.
    """
    remote = run.spec.get("remote")
    if run.program is None and not remote:
        return given
    work = given.work if run.program is None else timed(run.program, profile)
    return Bounds(_without(work, remote, parse(run.spec.get("grain", "tensor"))) if remote else work)


def _without(work: Workload, remote: list[int], grain: int) -> Workload:
    """The program as device memory sees it when these tensors (chunks, at a grain) never enter it."""
    work = work if grain == TENSOR else chunked(work, grain).work
    size = np.array(work.trace.size)
    size[remote] = 0
    return replace(work, trace=replace(work.trace, size=size))


@lru_cache(maxsize=2)
def _static_plan(trace: Trace) -> int | None:
    """Bytes that the lowest static plan holds that was found; None for programs that take long to plan."""
    found = static_bounds(trace)
    return None if found is None else found[2]
