"""A run, or a table of runs, as a file for another program: which formats there are, and how each is written."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO, cast

from gpusim.base.errors import ResultError, suggest
from gpusim.base.files import write_atomic
from gpusim.results.result import Result
from gpusim.results.summary import axes
from gpusim.results.viewers import tables
from gpusim.results.viewers.exported import ExportedRun

LOADS = ("gpusim.results.viewers",)  # packages whose modules are imported by name
TIMELINES = {"perfetto": ".pftrace", "chrome": ".json"}  # format of a run's timeline -> suffix of its files
TABLES = {format: f".{format}" for format in tables.FORMATS}
OPENED_BY = {
    "perfetto": "open it at https://ui.perfetto.dev, which reads it in the browser",
    "chrome": "open it at chrome://tracing or https://ui.perfetto.dev",
}


def timeline(run: ExportedRun, format: str, path: Path) -> str:
    """Write a run's timeline, packed where the path ends with .gz; returns one sentence on what was written.

    Raises ResultError for a folder that is not writable; GpusimError where the format's package is not installed.
    """
    module = import_module(f"gpusim.results.viewers.{format}")
    return _written(path, lambda file: str(module.write(run, file)))


def table(found: ExportedRun | Sequence[Result], format: str, path: Path) -> str:
    """Write the activities of a run, or the numbers of many, as a table; errors as of `timeline`."""
    about: Mapping[str, Any]
    if isinstance(found, ExportedRun):
        columns = tables.of_activities(found.activities)
        about = {"title": found.title, "key": found.key, "spec": found.spec, "metrics": found.metrics}
    else:
        columns, about = tables.of_runs(found), {"axes": axes(found)}
    return _written(path, lambda file: tables.write(columns, format, file, about))


def format_of(path: Path) -> str:
    """The format that a path's suffix names.  ResultError for another one."""
    known = {suffix: format for format, suffix in {**TIMELINES, **TABLES}.items()}
    suffix = path.with_suffix("").suffix if path.suffix == ".gz" else path.suffix
    if suffix not in known:
        raise ResultError(f"the suffix '{suffix}' names no format", str(path), suggest(suffix, known))
    return known[suffix]


def _written(path: Path, write: Callable[[BinaryIO], str]) -> str:
    said: list[str] = []

    def into(file: BinaryIO) -> None:
        if path.suffix == ".gz":
            with gzip.GzipFile("", "wb", 6, file, mtime=0) as packed:
                said.append(write(cast(BinaryIO, packed)))
        else:
            said.append(write(file))

    write_atomic(path, into)
    return said[0]
