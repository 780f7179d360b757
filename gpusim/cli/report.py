"""The report of a results folder, written again whenever something in the folder has changed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from gpusim.base.errors import ResultError
from gpusim.results.result import Result


def experiment_of(folder: Path) -> tuple[str, list[str]]:
    """Question and figures of the experiment whose results lie here.  Raises ResultError."""
    from gpusim.base.yaml import document
    from gpusim.results.folder import EXPERIMENT

    path = folder / EXPERIMENT
    if not path.is_file():
        raise ResultError("this is not a results folder", str(folder), "`gpusim run` makes one")
    data = document.read(path).data
    return str(data.get("question", "")), [str(name) for name in data.get("figures", [])]


def refresh(folder: Path, results: Sequence[Result]) -> None:
    """Write FOLDER/report.md with what is there now: verdicts of the referee, figures, missing runs.  Raises ResultError."""
    from gpusim.cli.draw import fitting
    from gpusim.results.folder import FIGURES, has_log, missing
    from gpusim.show.figures import FORMATS, left_out
    from gpusim.show.report import write_report

    question, asked = experiment_of(folder)
    telling = fitting(results, folder)
    files = {name: [folder / FIGURES / f"{name}.{form}" for form in FORMATS] for name in telling}
    there = {name: found for name, all_of in files.items() if (found := [file for file in all_of if file.is_file()])}
    write_report(
        folder, results, question, there, left_out(asked, telling), logged=has_log(folder), missing=missing(folder)
    )  # fmt: skip
