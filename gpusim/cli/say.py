"""What the verbs say about their work, on stderr: notes, warnings and progress, as loudly as -v and -q ask.

-q   no notes and no progress; warnings and errors stay
-v   also details: the files that words have led to, and how long the verb took
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import typer

from gpusim.base.errors import GpusimError, without_notes

QUIET, USUAL, VERBOSE = -1, 0, 1
_level: ContextVar[int] = ContextVar("level", default=USUAL)


@contextmanager
def as_asked(*, verbose: bool, quiet: bool) -> Iterator[None]:
    """Say more, or less, until the block ends.  Raises GpusimError for both at once."""
    if verbose and quiet:
        raise GpusimError("--verbose and --quiet contradict each other", hint="give one of them")
    token, began = _level.set(VERBOSE if verbose else QUIET if quiet else USUAL), time.monotonic()
    noted = without_notes.set(quiet)
    try:
        yield
        detail(f"done in {time.monotonic() - began:.1f} s")
    finally:
        _level.reset(token)
        without_notes.reset(noted)


def is_quiet() -> bool:
    """True under -q."""
    return _level.get() == QUIET


def told(text: str) -> None:
    """How far the work is, or what begins now."""
    if not is_quiet():
        typer.echo(f"gpusim: {text}", err=True)


def note(text: str) -> None:
    """Something worth knowing that is no mistake."""
    told(f"note: {text}")


def detail(text: str) -> None:
    """Something that only -v asks for."""
    if _level.get() == VERBOSE:
        told(text)


def warning(text: str) -> None:
    """Something doubtful in what was given; -q does not hide it."""
    typer.echo(f"gpusim: warning: {text}", err=True)


def error(text: str) -> None:
    """Why the verb ends, or what of it failed."""
    typer.echo(f"gpusim: {text}", err=True)


def renamed(before: str, now: str) -> None:
    """A spelling of before that still works."""
    note(f"{before} is now {now}")


def plain(text: str) -> None:
    """A line of a long measurement, as it is."""
    if not is_quiet():
        typer.echo(text, err=True)
