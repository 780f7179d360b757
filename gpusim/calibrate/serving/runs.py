"""Published runs beside simulated ones, and those as they were last scored, a row for each: what the page is made from."""

from __future__ import annotations

import csv
import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpusim.base.errors import GpusimError
from gpusim.calibrate.serving.cases import PublishedRun, shipped
from gpusim.calibrate.serving.closed_loop import SimulatedRun

DATA = Path(__file__).parents[1] / "data" / "serving_simulated.csv"
_NUMBERS = ("ttft", "tpot", "ttft_p99", "tpot_p99", "throughput", "steps")
_COLUMNS = ("name", *_NUMBERS, "parts", "low", "high", "why")


@dataclass(frozen=True)
class ScoredRun:
    """A run, simulated (None where it cannot be), and why not."""

    run: PublishedRun
    simulated: SimulatedRun | None
    why: str = ""

    @property
    def errors(self) -> tuple[float, float] | None:
        """Of the time to the first token and of each further one, as shares of the measured."""
        if self.simulated is None:
            return None
        return self.simulated.ttft / self.run.ttft - 1, self.simulated.tpot / self.run.tpot - 1


def score(runs: Iterable[PublishedRun], simulate: Callable[[PublishedRun], SimulatedRun]) -> Iterator[ScoredRun]:
    """Each run simulated, one after the other."""
    for run in runs:
        try:
            yield ScoredRun(run, simulate(run))
        except GpusimError as error:
            yield ScoredRun(run, None, error.message)


@dataclass(frozen=True)
class RunErrors:
    """|simulated / measured - 1| of one of the two times over some runs: median, 90th percentile, and median with its sign."""

    runs: int
    median: float
    p90: float
    signed: float


def errors(scored: Sequence[ScoredRun], which: int) -> RunErrors | None:
    """Of those that were simulated; `which`: 0 the first token, 1 further tokens; None without any."""
    signed = [one.errors[which] for one in scored if one.errors is not None]
    if not signed:
        return None
    sizes = sorted(abs(error) for error in signed)
    p90 = sizes[min(len(sizes) - 1, round(0.9 * (len(sizes) - 1)))]
    return RunErrors(len(sizes), statistics.median(sizes), p90, statistics.median(signed))


def write(scored: Iterable[ScoredRun], path: Path = DATA) -> None:
    """Keep these, and what is there of other runs; in the order of the published ones."""
    rows = {one.run.name: one for one in [*(read(path) if path.is_file() else ()), *scored]}
    with path.open("w", newline="", encoding="utf-8") as file:
        out = csv.writer(file, lineterminator="\n")
        out.writerow(_COLUMNS)
        for run in shipped().runs():
            one = rows.get(run.name)
            if one is not None:
                out.writerow((run.name, *_cells(one.simulated), one.why))


def _cells(found: SimulatedRun | None) -> list[str]:
    if found is None:
        return [""] * (len(_COLUMNS) - 2)
    numbers = [f"{getattr(found, name):.6g}" for name in _NUMBERS]
    return [*numbers, " ".join(f"{part:.4f}" for part in found.parts), f"{found.low:.4f}", f"{found.high:.4f}"]


def read(path: Path = DATA) -> list[ScoredRun]:
    """What was kept.  Raises GpusimError for a run that is not published any more."""
    runs = {run.name: run for run in shipped().runs()}
    found = []
    with path.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if row["name"] not in runs:
                raise GpusimError(f"no published run is called '{row['name']}'", where=str(path))
            found.append(ScoredRun(runs[row["name"]], _simulated(row), row["why"]))
    return found


def _simulated(row: dict[str, str]) -> SimulatedRun | None:
    if not row["ttft"]:
        return None
    parts = tuple(float(part) for part in row["parts"].split())
    times: dict[str, Any] = {name: float(row[name]) for name in (*_NUMBERS[:-1], "low", "high")}
    return SimulatedRun(**times, steps=int(row["steps"]), parts=parts)
