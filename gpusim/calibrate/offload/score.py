"""Runs the cases and holds what was measured against what the simulation says."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import combinations

from gpusim.base.errors import GpusimError
from gpusim.calibrate.offload import generating, training
from gpusim.calibrate.offload.cases import OffloadCase
from gpusim.calibrate.offload.machines import machine
from gpusim.trace.trace import Trace


@dataclass(frozen=True)
class Scored:
    """A case, what was simulated (None where it cannot be), and why not."""

    case: OffloadCase
    simulated: float | None
    why: str = ""

    @property
    def error(self) -> float | None:
        """How much faster (+) or slower (-) the simulated system is, as a share; of a loss in percentage points."""
        if self.simulated is None:
            return None
        if self.case.unit == "% loss":
            return (self.case.measured - self.simulated) / 100
        ratio = self.simulated / self.case.measured
        return (ratio if self.case.higher_is_better else 1 / ratio) - 1


def score(cases: Iterable[OffloadCase], seconds: Callable[[Trace, str], float]) -> list[Scored]:
    """Each case simulated; `seconds` runs a trace on a profile (text) and says how long it took."""
    found = []
    for case in cases:
        try:
            if case.task == "train":
                simulated = training.simulated(case, seconds, machine(case))
            else:
                simulated = generating.value(case, seconds(generating.program(case), machine(case)))
            found.append(Scored(case, simulated))
        except GpusimError as error:
            found.append(Scored(case, None, error.message))
    return found


def order(scored: Iterable[Scored]) -> tuple[int, int]:
    """(right, all) pairs of cases of one model on one GPU whose measured numbers differ by more than a tenth."""
    told = [(s.case, s.simulated) for s in scored if s.simulated is not None]
    found = [
        (x > y) == (a.measured > b.measured)
        for (a, x), (b, y) in combinations(told, 2)
        if (a.gpu, a.model, a.unit, a.phase) == (b.gpu, b.model, b.unit, b.phase)
        and not 0.9 < a.measured / b.measured < 1 / 0.9
    ]
    return sum(found), len(found)


def median(scored: Iterable[Scored]) -> float:
    """Median of the errors' sizes of what was simulated."""
    return statistics.median(abs(s.error) for s in scored if s.error is not None)
