"""Memory over time of all runs as columns, as far as a page has room: those of the figure come first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from gpusim.results.result import Result
from gpusim.show.groups import starred
from gpusim.show.moments import rows
from gpusim.show.page.folder import Folder
from gpusim.show.page.pack import packed
from gpusim.show.values.over_time import LEVELS, levels, over_time
from gpusim.show.view import run_name, varying

POINTS = 20_000  # columns of pixels of all runs together
MOST, LEAST = 600, 100  # of one run
RUNS = POINTS // LEAST  # from more runs only those of the figure are kept


def memory(folders: Sequence[Folder], every: Sequence[Sequence[Result]]) -> str:
    """Text of a blob; "" where no run recorded its memory.

    every  the results of each folder, with timelines where a figure shows them one by one
    """
    total = sum(len(one.results) for one in folders)
    about: dict[str, Any] = {"runs": [], "shown": [], "answer": "", "note": ""}
    columns: dict[str, npt.NDArray[Any]] = {}
    for at, (folder, shown) in enumerate(zip(folders, every, strict=True)):
        results = [folder.whole(r) for r in folder.results] if total <= RUNS else shown
        known = [r for r in results if rows(r)]
        figure, letter = over_time(known), f"{'AB'[at]} " if len(folders) > 1 else ""
        names = {r.key: starred(line.name, line.oracle) for r, line in zip(figure.shown, figure.runs, strict=True)}
        keys, across = varying(known), max(LEAST, min(MOST, POINTS // max(1, total)))
        for run in known:
            said, own = _run(run, letter + (names.get(run.key) or run_name(run, keys)), across)
            about["runs"].append(said)
            columns |= own
        about["shown"] += names
        about["answer"] = f"{about['answer']} {letter}{figure.answer}".strip()
        about["note"] = f"{about['note']} {letter}{figure.note}".strip() if figure.note else about["note"]
    return packed(about, columns, [name for name in columns if name.endswith(".time")]) if columns else ""


def _run(run: Result, name: str, across: int) -> tuple[Mapping[str, Any], dict[str, npt.NDArray[Any]]]:
    """What is said of a run, and its points by level."""
    found = levels(run, name)
    about = {
        "key": run.key, "name": name, "capacity": found.capacity, "plan": found.plan, "until": found.until,
        "timed": found.timed, "ending": found.ending, "highest": found.highest,
    }  # fmt: skip
    columns: dict[str, npt.NDArray[Any]] = {}
    for level in LEVELS:
        if found.bytes[level].any():
            time, height = found.seen(level, across)
            columns[f"{run.key}.{level}.time"] = np.round(time).astype(np.int64)
            columns[f"{run.key}.{level}.bytes"] = np.round(height).astype(np.int64)
    return about, columns
