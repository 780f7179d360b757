"""What a page reads of a results folder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gpusim.base.errors import ResultError
from gpusim.base.yaml import document
from gpusim.results import manifest
from gpusim.results.afterwards import RESULT
from gpusim.results.folder import (
    EXPERIMENT,
    RUNS,
    load_folder,
    load_result,
    missing,
    run_folders,
    said_of_machine,
)
from gpusim.results.named import key_of
from gpusim.results.result import Result
from gpusim.results.run_files import is_logged
from gpusim.show.page.beside import has_advice

ALONE = "run it alone, with --log and another folder: its row in the page has the command"  # of very many


@dataclass(frozen=True)
class Folder:
    """The finished runs of one folder, without timelines and logs, and what stands beside them.

    name        of the folder; its path is the user's own business
    question    of the experiment; "" of the folder of one run
    experiment  its YAML, with every default in place
    places      key of a run -> its folder
    logged      keys of the runs that kept a log
    missing     how many runs of the grid have no result
    """

    path: Path
    name: str
    question: str
    experiment: str
    manifest: dict[str, Any]
    machine: dict[str, Any]
    results: tuple[Result, ...]
    places: dict[str, Path]
    logged: tuple[str, ...]
    missing: int

    def whole(self, result: Result, *, log: bool = False) -> Result:
        """The result with its timeline, the picture of its faults and, when asked for, its log."""
        found = load_result(self.places[result.key], log=log)
        return replace(found, bounds=result.bounds, metrics=result.metrics, sampled=result.sampled)


def read(path: Path) -> Folder:
    """The folder.  Raises ResultError: not there, empty, nothing finished, changed since its run, of another version."""
    alone = has_advice(path) and not (path / RUNS).is_dir()  # of a program that was advised on, and not run here
    results = [] if alone else load_folder(path, timeline=False)
    places = {} if alone else {place.name: place for place in run_folders(path)}
    experiment = path / EXPERIMENT
    text = document.read(experiment).data if experiment.is_file() else {}
    return Folder(
        path, path.absolute().name, str(text.get("question", "")), experiment.read_text("utf-8") if text else "",
        manifest.read(path) or {}, said_of_machine(path), tuple(results), places,
        tuple(key for key, place in places.items() if is_logged(place)),
        0 if (path / RESULT).is_file() else missing(path),
    )  # fmt: skip


def chosen(folder: Folder, runs: Sequence[str]) -> list[str]:
    """The keys of runs that are named by their number in the grid, or by how their key begins.  Raises ResultError."""
    keys = [r.key for r in folder.results]
    found = []
    for run in runs:
        key = key_of(run, keys, folder.path)
        if key not in folder.logged:
            again = "run it again with --log" if (folder.places[key] / RESULT).is_file() else ALONE
            raise ResultError(f"run {run} kept no log, so it has no timeline", str(folder.path), again)
        found.append(key)
    return list(dict.fromkeys(found))

