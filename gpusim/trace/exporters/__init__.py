"""Traces in the formats of other tools: one file per format, `write(trace, file, **options)`, which returns what to say."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any, BinaryIO

from gpusim.trace.trace import Trace

LOADS = ("gpusim.trace.exporters",)  # packages whose modules are imported by name


@dataclass(frozen=True)
class ExportFormat:
    """One format: `gpusim.trace.exporters.<module>.<function>(trace, file, **options) -> str`."""

    module: str
    function: str
    suffix: str
    options: tuple[str, ...]  # of `gpusim export` that it understands


FORMATS: dict[str, ExportFormat] = {
    "dtr": ExportFormat("dtr", "write", ".log", ("on",)),
    "libcachesim-csv": ExportFormat("libcachesim", "write_csv", ".csv", ("grain",)),
    "oracleGeneral": ExportFormat("libcachesim", "write_binary", ".oracleGeneral.bin", ("grain",)),
}


def export_trace(trace: Trace, format: str, file: BinaryIO, **options: Any) -> str:
    """Write the trace to an open file; returns one sentence on what was written.  Raises TraceError."""
    chosen = FORMATS[format]
    write = getattr(import_module(f"gpusim.trace.exporters.{chosen.module}"), chosen.function)
    return str(write(trace, file, **options))
