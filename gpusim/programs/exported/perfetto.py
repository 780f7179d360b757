"""A run that `gpusim export --format perfetto` has written; needs the package perfetto."""

from __future__ import annotations

from typing import BinaryIO

from gpusim.programs.exported.program import program_of
from gpusim.results.viewers import perfetto
from gpusim.trace.trace import Trace


def read(file: BinaryIO, path: str, *, name: str | None = None) -> Trace:
    """The program of the run.  Raises TraceError; GpusimError where the package is not installed."""
    return program_of(perfetto.read(file, path), "gpusim-perfetto", path, name)
