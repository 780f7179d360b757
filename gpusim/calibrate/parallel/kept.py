"""The simulated steps as they were last scored, a row for each case: what the page in the documents is made from."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from pathlib import Path

from gpusim.base.errors import GpusimError
from gpusim.calibrate.parallel.cases import shipped
from gpusim.calibrate.parallel.running import StepTime
from gpusim.calibrate.parallel.score import ScoredStep

DATA = Path(__file__).parents[1] / "data" / "parallel_simulated.csv"
_COLUMNS = ("name", "step_s", "kernels_s", "host_s", "why")


def write(scored: Iterable[ScoredStep], path: Path = DATA) -> None:
    """Keep these, and what is there of other cases; in the order of the published ones."""
    rows = {one.case.name: one for one in [*(read(path) if path.is_file() else ()), *scored]}
    with path.open("w", newline="", encoding="utf-8") as file:
        out = csv.writer(file, lineterminator="\n")
        out.writerow(_COLUMNS)
        for case in shipped().cases:
            if (one := rows.get(case.name)) is not None:
                step = one.simulated
                numbers = ("", "", "") if step is None else (f"{step.step:.6g}", f"{step.kernels:.6g}", f"{step.host:.6g}")
                out.writerow((case.name, *numbers, one.why))


def read(path: Path = DATA) -> list[ScoredStep]:
    """What was kept.  Raises GpusimError for a case that is not published any more."""
    cases = {case.name: case for case in shipped().cases}
    found = []
    with path.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if row["name"] not in cases:
                raise GpusimError(f"no published step is called '{row['name']}'", where=str(path))
            step = StepTime(*(float(row[name]) for name in _COLUMNS[1:4])) if row["step_s"] else None
            found.append(ScoredStep(cases[row["name"]], step, row["why"]))
    return found
