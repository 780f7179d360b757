"""A word on stderr while something takes long; never on stdout, and no bar where nobody looks."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import typer


@contextmanager
def bar(what: str) -> Iterator[Callable[[int, int], None]]:
    """A function of (done, total) that moves a progress bar on a terminal, and does nothing elsewhere."""
    if not sys.stderr.isatty():
        yield lambda done, total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        task = shown.add_task(what, total=None)
        yield lambda done, total: shown.update(task, completed=done, total=total)


def warn_of_compilation() -> None:
    """Say that the first run takes longer, when the compiled kernels are not on disk yet."""
    if os.environ.get("NUMBA_DISABLE_JIT", "0") != "0":
        return
    import gpusim.core

    beside = Path(gpusim.core.__file__).parent / "__pycache__"
    own = os.environ.get("NUMBA_CACHE_DIR")
    places = [Path(own)] if own else [beside, Path.home() / ".cache" / "numba"]
    if not any(next(place.rglob("island.*.nbi"), None) for place in places if place.is_dir()):
        typer.echo("gpusim: compiling the kernels, once; this takes up to a minute", err=True)
