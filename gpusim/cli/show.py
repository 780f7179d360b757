"""What several verbs show of results: their table, the formats of figures, and what is missing."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

import typer

from gpusim.base.errors import ResultError, suggest
from gpusim.cli import say
from gpusim.cli.output import emit_json
from gpusim.results.result import Result


def print_results(results: Sequence[Result], *, json: bool) -> None:
    """One row per run: what differs, how it ended, what was measured; then what that says, in words."""
    from gpusim.show import table
    from gpusim.show.answer import answer
    from gpusim.show.basis import basis
    from gpusim.show.interval import drawn
    from gpusim.show.picked import overview
    from gpusim.show.ranks import of_ranks

    if json:
        emit_json(table.rows(results))
        return
    seen = sys.stdout.isatty()
    width = shutil.get_terminal_size().columns if seen else 120
    typer.echo(overview(results, width=width, colour=seen))
    for words in (of_ranks(results), answer(results), drawn(results), basis(results)):
        if words:
            typer.echo(f"\n{words}")


def chosen_formats(text: str) -> list[str]:
    """ "png,svg" as a list; ResultError for a format that figures do not come in."""
    from gpusim.show.figures import FORMATS

    asked = [word.strip() for word in text.split(",") if word.strip()]
    for word in asked:
        if word not in FORMATS:
            raise ResultError(f"figures do not come as '{word}'", hint=suggest(word, FORMATS) or f"one of {', '.join(FORMATS)}")
    return list(dict.fromkeys(asked)) or list(FORMATS)


def say_missing(folder: Path) -> None:
    """A note on stderr when a grid is not complete."""
    from gpusim.results.folder import EXPERIMENT, missing, run_folders

    if left := missing(folder):
        there = len(run_folders(folder))
        say.note(
            f"{folder}: {there} of {there + left} runs are there; the others failed, were stopped, or still run: "
            f"`gpusim run {folder / EXPERIMENT} -o {folder}` does the rest"
        )
