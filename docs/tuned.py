"""Writes the table of docs/tune.md anew: three shipped questions, searched and as a grid of the same budget.

    PYTHONPATH=. python docs/tuned.py [FOLDER]   some minutes; FOLDER keeps the runs (default: results/tuned)
"""

from __future__ import annotations

import statistics
import sys
from pathlib import Path
from typing import Any

from gpusim.api.grids import Experiment
from gpusim.api.tuning import tune
from gpusim.base.units import show_fraction
from gpusim.results.metrics import same
from gpusim.show.view import human
from gpusim.studies.tuning.trials import FOUND, GRID, WRITTEN

PAGE = Path(__file__).with_name("tune.md")
GRID_BUDGET, BUDGET, SEEDS = 100, 80, (0, 1, 2)
"""Trials of the grid; of a search, which then sets knobs back, and with that stays below the grid's; and its seeds."""
QUESTIONS = {
    "prefetch": (),
    "ssd": ("tiers=[host > nvme, nvme, nvme(direct=1)]",),
    "what_if": ("memory=6 GiB",),
}
HEAD = ("experiment", "knobs", "runs of a trial", "metric", "as written", "grid", "search, seeds 0, 1, 2",
        "search against as written", "search against the grid")  # fmt: skip


def row(name: str, sets: tuple[str, ...], folder: Path) -> list[str]:
    """One question: the best as written, of the grid, and of a search from each seed, the median of which is compared."""
    e = Experiment.load(name, *sets)
    found = [tune(e, budget=BUDGET, seed=seed, folder=folder / f"{name}-{seed}").value for seed in SEEDS]
    first = tune(e, budget=GRID_BUDGET, grid=True, folder=folder / f"{name}-grid").value
    goal, trials = first.asked.goals[0], max(len(each.of(*FOUND)) for each in found)
    written, grid = _best(first, WRITTEN), _best(first, GRID)
    assert trials <= GRID_BUDGET, f"a search of {name} took {trials} trials"
    searched = [_best(each) for each in found]
    median, each = statistics.median(searched), ", ".join(human(goal.metric, value) for value in searched)
    command = " ".join([f"`{name}`", *(f"with `{each}`" for each in sets)])
    return [
        command, str(len(first.space.knobs)), str(first.places), goal.label, human(goal.metric, written),
        f"{human(goal.metric, grid)} ({len(first.of(GRID))} points)", f"{each} (at most {trials} trials)",
        _apart(median, written), _apart(median, grid),
    ]  # fmt: skip


def _best(found: Any, *origins: str) -> float:
    trial = found.best(origins=origins) if origins else found.best()
    return float(trial.values[0])


def _apart(a: float, b: float) -> str:
    return "a tie" if same(a, b) else f"{show_fraction(abs(1 - a / b), 2)} {'less' if a < b else 'more'}"


def main() -> None:
    """Write the table into the page."""
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "results/tuned")
    rows = [row(name, sets, folder) for name, sets in QUESTIONS.items()]
    table = "\n".join("| " + " | ".join(cells) + " |" for cells in (HEAD, ["---"] * len(HEAD), *rows))
    text = PAGE.read_text("utf-8")
    before, after = (text.partition(f"<!-- {word}: questions -->") for word in ("begin", "end"))
    PAGE.write_text(f"{before[0]}{before[1]}\n{table}\n{after[1]}{after[2]}", encoding="utf-8")
    print(table)


if __name__ == "__main__":
    main()
