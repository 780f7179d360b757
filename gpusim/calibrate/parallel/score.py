"""Runs the cases and holds what was measured against what the simulation says."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

from gpusim.base.errors import GpusimError
from gpusim.calibrate.parallel.cases import ParallelCase
from gpusim.calibrate.parallel.running import StepTime

ALIKE = 0.02
"""Measured steps that differ by less have no order."""


@dataclass(frozen=True)
class ScoredStep:
    """A case, its simulated step (None where it cannot be), and why not."""

    case: ParallelCase
    simulated: StepTime | None
    why: str = ""

    @property
    def error(self) -> float | None:
        """How much longer (+) or shorter (-) the simulated step is, as a share of the measured one."""
        return None if self.simulated is None else self.simulated.step / self.case.step_s - 1


def score(cases: Iterable[ParallelCase], simulated: Callable[[ParallelCase], StepTime]) -> Iterator[ScoredStep]:
    """Each case simulated, one after the other."""
    for case in cases:
        try:
            yield ScoredStep(case, simulated(case))
        except GpusimError as error:
            yield ScoredStep(case, None, error.message)


@dataclass(frozen=True)
class StepErrors:
    """Of some steps: shares of the measured ones."""

    steps: int
    median: float
    p90: float
    signed: float
    """Median with its sign."""


def errors(scored: Sequence[ScoredStep]) -> StepErrors | None:
    """Of those that were simulated; None without any."""
    signed = [s.error for s in scored if s.error is not None]
    if not signed:
        return None
    sizes = sorted(abs(error) for error in signed)
    p90 = sizes[min(len(sizes) - 1, round(0.9 * (len(sizes) - 1)))]
    return StepErrors(len(sizes), statistics.median(sizes), p90, statistics.median(signed))


def order(scored: Sequence[ScoredStep]) -> tuple[int, int]:
    """(right, all) pairs of layouts of one model on one machine whose times for a sample differ by more than ALIKE."""
    told = [(s.case, s.simulated.step) for s in scored if s.simulated is not None]
    right = pairs = 0
    for (a, x), (b, y) in combinations(told, 2):
        if _place(a) != _place(b) or a.layout == b.layout:
            continue
        measured = (a.step_s / a.samples) / (b.step_s / b.samples)
        if abs(measured - 1) > ALIKE:
            pairs += 1
            right += (measured > 1) == ((x / a.samples) / (y / b.samples) > 1)
    return right, pairs


def _place(case: ParallelCase) -> tuple[str, str, str, int, str]:
    return case.source, case.model, case.machine, case.seq, case.recompute


def by_source(scored: Sequence[ScoredStep]) -> dict[str, list[ScoredStep]]:
    """In the order in which the sources come."""
    found: dict[str, list[ScoredStep]] = {}
    for one in scored:
        found.setdefault(one.case.source, []).append(one)
    return found
