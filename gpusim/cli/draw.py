"""The figures of a results folder, drawn by worker processes: the end of `gpusim run`, and `gpusim plot`.

matplotlib is imported in the ancestor of the workers (experiment/pool.py), while the runs of the grid are simulated here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from gpusim.base.errors import GpusimError, ResultError, suggest
from gpusim.experiment.pool import cores, prepare, run_tasks
from gpusim.results.folder import FIGURES, has_log, load_folder, run_folders
from gpusim.results.result import Result
from gpusim.results.run_files import is_logged
from gpusim.show import figures
from gpusim.show.programs import programs

MAP = "address_map"  # the figure that reads the categories of tensors

# What the ancestor of the workers imports: the command itself, what draws, and what matplotlib else imports late.
LATE = ("matplotlib.backends.backend_svg", "matplotlib.backends.backend_pdf", "PIL.PngImagePlugin")
NEEDS = ("gpusim.cli.app", __name__, *(f"gpusim.show.figure.{name}" for name in figures.FIGURES), *LATE)
STUDY_NEEDS = ("gpusim.cli.app", __name__, "gpusim.show.allocator_study", *LATE)


@dataclass(frozen=True)
class Sheet:
    """One figure to draw, in all its formats."""

    figure: str
    question: str
    results: Path
    target: Path
    formats: tuple[str, ...]


@dataclass(frozen=True)
class StudySheet:
    """One figure of `gpusim oom`."""

    figure: str
    study: Any
    target: Path
    formats: tuple[str, ...]


@dataclass(frozen=True)
class FitSheet:
    """The figure of `gpusim fit`; values as in its fit.json."""

    values: dict[str, Any]
    target: Path
    formats: tuple[str, ...]
    figure: str = "fit"


AnySheet = TypeVar("AnySheet", Sheet, StudySheet, FitSheet)


def draw_study_sheet(sheet: StudySheet) -> None:
    """Draw one figure of a study and keep it in its formats.  Raises ResultError."""
    from gpusim.show import allocator_study as study

    figures.save(study.FIGURES[sheet.figure](sheet.study), sheet.target / sheet.figure, sheet.formats)


def draw_fit_sheet(sheet: FitSheet) -> None:
    """Draw the figure of a fit and keep it in its formats.  Raises ResultError."""
    from gpusim.show import fit

    figures.save(fit.draw(sheet.values), sheet.target / sheet.figure, sheet.formats)


def draw(
    folder: Path,
    names: Sequence[str],
    question: str,
    out: Path | None = None,
    *,
    results: Sequence[Result],
    formats: Sequence[str],
    jobs: int | None = None,
    new: bool = True,
    meanwhile: Callable[[], object] = lambda: None,
) -> dict[str, list[Path]]:
    """The named figures of a results folder, as far as they say something; returns the files by figure.

    results    those of the folder; neither event logs nor timelines are needed
    formats    some of "png", "svg", "pdf"
    jobs       worker processes; None: one per core; 1: this process draws
    new        draw also what is there already
    meanwhile  called once, while the workers draw
    Raises ResultError for an unknown name, and when a figure cannot be drawn or written: then it is not there.
    """
    for name in names:
        if name not in figures.FIGURES:
            raise ResultError(f"there is no figure '{name}'", hint=suggest(name, figures.FIGURES))
    target = out or folder / FIGURES
    files = {name: [target / f"{name}.{form}" for form in formats] for name in figures.FIGURES if name in names}
    there = {name for name, made in files.items() if not new and all(file.is_file() for file in made)}
    telling = fitting(results, folder)
    shown = [name for name in files if name in telling]
    # The question of the experiment stands over its first figure only.
    sheets = [
        Sheet(name, question if name == shown[0] else "", folder, target, tuple(formats))
        for name in shown if name not in there
    ]  # fmt: skip
    jobs = jobs or cores()
    if sheets and jobs > 1:
        prepare(NEEDS)
    carry_out(sheets, draw_sheet, jobs, meanwhile)
    return {name: files[name] for name in shown}


def fitting(results: Sequence[Result], folder: Path) -> list[str]:
    """The figures that say something about the results of this folder, in the order in which they are worth reading."""
    logged = any(is_logged(run) for run in run_folders(folder))
    known = {*figures.suitable(results)}
    known |= {name for name, of in figures.FIGURES.items() if (of.log or of.program) and (logged or not of.log)}
    if not has_log(folder):  # of blocks: pages and ranks have others
        known -= {"address_map"}
    return [name for name in figures.FIGURES if name in known]


def carry_out(
    sheets: Sequence[AnySheet], work: Callable[[AnySheet], object], jobs: int, meanwhile: Callable[[], object] = lambda: None
) -> None:
    """Have all sheets drawn.  Raises ResultError when one cannot be, RuntimeError with the traceback for a bug."""
    with closing(run_tasks(sheets, work, jobs, meanwhile)) as ending:
        for index, failure in ending:
            if failure is None:
                continue
            if failure.is_bug:
                bug = RuntimeError(f"{sheets[index].figure}: {failure.message}")
                bug.add_note(failure.trace)
                raise bug
            raise ResultError(f"the figure {sheets[index].figure} was not drawn: {failure.message}")


def draw_sheet(sheet: Sheet) -> None:
    """Draw one figure and keep it in its formats.  Raises ResultError."""
    drawing = figures.FIGURES[sheet.figure]
    results = load_folder(sheet.results, log=drawing.log, timeline=drawing.timeline)
    categories = _categories(results, sheet.results) if sheet.figure == MAP else None
    ran = programs(results, sheet.results) if drawing.program else None
    figures.draw_all(results, sheet.target, sheet.question, [sheet.figure], sheet.formats, categories, ran)


def _categories(results: Sequence[Result], folder: Path) -> dict[str, list[str]]:
    """Trace name -> what each of its tensors is, for the colours of the address map; without traces that are gone."""
    from gpusim.base.yaml.find import find
    from gpusim.trace.files import load_trace

    found = {}
    for result in results:
        name, recorded = str(result.spec["trace"]), result.spec.get("trace_hash")
        if name in found or result.log is None:
            continue
        try:
            trace = load_trace(find("trace", name, folder))
        except GpusimError:
            continue  # results outlive their trace: blocks are then coloured by size
        if trace.content_hash == recorded:
            found[name] = [trace.categories[c] for c in trace.category]
    return found
