"""How far off the simulated times of measured collectives are: by machine and size, those that the fit saw and the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from gpusim.calibrate.collectives.rows import MACHINES, CollectiveRow, LeftOut, bands
from gpusim.calibrate.collectives.simulated import SimulatedRows

GOALS = {"from 1 MiB": 0.15, "below 1 MiB": 0.25}


@dataclass(frozen=True)
class CollectiveScore:
    """Errors of the rows of one machine and band.

    error     median of |simulated / measured - 1|
    tail      their 90th percentile
    spread    10th and 90th percentile of measured / simulated
    estimate  median error of NCCL's own estimate, of the rows for which it has one
    """

    machine: str
    on: str
    fitted: bool
    band: str
    rows: int
    error: float
    tail: float
    spread: tuple[float, float]
    estimate: float | None

    @property
    def reached(self) -> bool:
        """The median is within the goal."""
        return self.error <= GOALS[self.band]


def score(rows: list[CollectiveRow], simulated: SimulatedRows) -> list[CollectiveScore]:
    """One for each machine and band."""
    return [_scored(machine, band, group, simulated) for machine, band, group in bands(rows)]


def _scored(machine: str, band: str, rows: Sequence[CollectiveRow], simulated: SimulatedRows) -> CollectiveScore:
    found = [simulated.of(row) for row in rows]
    ratios = [time.ns / 1e3 / row.us for row, time in zip(rows, found, strict=True)]
    rival = [abs(time.estimate / 1e3 / row.us - 1) for row, time in zip(rows, found, strict=True) if time.estimate]
    errors, apart = sorted(abs(ratio - 1) for ratio in ratios), sorted(1 / ratio for ratio in ratios)
    measured = MACHINES[machine]
    return CollectiveScore(
        machine, measured.on, measured.fitted, band, len(rows), median(errors), _share(errors, 0.9),
        (_share(apart, 0.1), _share(apart, 0.9)), median(rival) if rival else None,
    )  # fmt: skip


def _share(ordered: Sequence[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def table(found: Sequence[CollectiveScore], without: Sequence[CollectiveScore] = ()) -> list[str]:
    """Markdown; `without`: of the same machines, each by a fit that did not see it."""
    apart = {(each.machine, each.band): each for each in without}
    head = ["machine", "on", "band", "rows", "median", "90 %", "measured / simulated", "NCCL's estimate"]
    head += ["median without it", "90 % without it"] if without else []
    lines = [f"| {' | '.join(head)} |", "| --- | --- | --- |" + " ---: |" * (len(head) - 3)]
    for each in found:
        low, high = each.spread
        cells = [each.machine, f"`{each.on}`", each.band, str(each.rows), *_errors(each), f"{low:.2f} to {high:.2f}"]
        cells.append("" if each.estimate is None else f"{100 * each.estimate:.0f} %")
        if without:
            cells += _errors(apart[each.machine, each.band])
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _errors(each: CollectiveScore) -> list[str]:
    return [f"{100 * each.error:.1f} %{'' if each.reached else ' *'}", f"{100 * each.tail:.0f} %"]


def left_out(rows: Iterable[LeftOut]) -> list[str]:
    """Markdown: rows that are not compared, by reason."""
    counted = Counter((row.why, row.machine) for row in rows)
    lines = ["| why | machine | rows |", "| --- | --- | ---: |"]
    return lines + [f"| {why} | {machine} | {count} |" for (why, machine), count in sorted(counted.items())]
