"""A run that `gpusim export --format chrome` has written."""

from __future__ import annotations

from typing import BinaryIO

from gpusim.programs.exported.program import program_of
from gpusim.results.viewers import chrome
from gpusim.trace.trace import Trace


def read(file: BinaryIO, path: str, *, name: str | None = None) -> Trace:
    """The program of the run.  Raises TraceError."""
    return program_of(chrome.read(file, path), "gpusim-chrome", path, name)
