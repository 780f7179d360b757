"""One run on disk: the files of its folder, and its result.json, which names them all with their hashes."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy.typing as npt

from gpusim.base.errors import ResultError
from gpusim.base.files import digest, make_folder, read_arrays, read_json, remove, write_arrays, write_json
from gpusim.results import afterwards
from gpusim.results import fault_picture as pictures
from gpusim.results import faults as report
from gpusim.results import renamed as former
from gpusim.results.afterwards import RESULT
from gpusim.results.columns import narrow, pack_log, unpack_log, widen
from gpusim.results.faults import FaultReport
from gpusim.results.packed import Row
from gpusim.results.renamed import renamed
from gpusim.results.result import Result
from gpusim.results.schema import RESULT as SCHEMA
from gpusim.results.seal import OTHER, read_final, repair_run, write_sealed
from gpusim.trace.trace import Trace

TIMELINE, EVENT_LOG, PROGRAM = "timeline.npz", "log.npz", "program.npz"
PAGE_LOG = "pages.npz"
RANKS = "ranks"  # a folder of a number for each
LOGS = (EVENT_LOG, PAGE_LOG, PROGRAM)  # large: read and compared with their hashes only where they are needed
FAULTS, PICTURE = "faults.json", "faults.npz"
FIELDS = ("spec", "outcome", "failure", "metrics", "bounds")  # of a result, as they are kept


def row_of(result: Result) -> Row:
    faults = None if result.faults is None else result.faults.plain()
    return {**{name: getattr(result, name) for name in FIELDS}, "faults": faults}


def save_run(folder: Path, result: Result) -> None:
    """Keep a run in its folder.  ResultError (disk full, not writable): then it counts as not run."""
    make_folder(folder)
    remove(folder / RESULT)  # from here on, until the new one stands, the run is unfinished
    afterwards.forget(folder)
    for cut in folder.glob(".*.part"):  # of a process that was killed
        remove(cut)
    files = _save_files(folder, result)
    value = {**SCHEMA.header(), "files": files, **{name: getattr(result, name) for name in FIELDS}}
    if result.ranks:
        value["ranks"] = [_save_rank(of_rank(folder, i), rank) for i, rank in enumerate(result.ranks)]
    write_sealed(folder / RESULT, value)


def of_rank(folder: Path, number: int) -> Path:
    """The folder of a rank's files."""
    return folder / RANKS / str(number)


def _save_rank(folder: Path, rank: Result) -> Row:
    make_folder(folder)
    return {**{name: getattr(rank, name) for name in FIELDS}, "files": _save_files(folder, rank)}


def _save_files(folder: Path, result: Result) -> dict[str, str]:
    """Write the run's other files, remove those that it does not have; name -> hash."""
    faults, log, pages = result.faults, result.log, result.pages
    arrays = {
        TIMELINE: result.timeline,
        PICTURE: None if faults is None or faults.picture is None else faults.picture.arrays(),
        EVENT_LOG: None if log is None else pack_log(log),
        PAGE_LOG: pages,
    }
    written = []
    for name, columns in arrays.items():
        if columns is None:
            remove(folder / name)
        else:
            write_arrays(folder / name, {column: narrow(values) for column, values in columns.items()})
            written.append(name)
    if faults is None:
        remove(folder / FAULTS)
    else:
        write_json(folder / FAULTS, faults.plain())
        written.append(FAULTS)
    if log is None or result.program is None:
        remove(folder / PROGRAM)
    else:
        from gpusim.trace.files import save_trace

        save_trace(result.program, folder / PROGRAM)
        written.append(PROGRAM)
    return {name: digest(folder / name) for name in written}


def faults_of(folder: Path, files: Mapping[str, str], picture: bool) -> FaultReport | None:
    if FAULTS not in files:
        return None
    found = report.from_plain(read_json(folder / FAULTS))
    if picture and PICTURE in files:
        found = replace(found, picture=pictures.from_arrays(read_arrays(folder / PICTURE)))
    return found


def read_run(folder: Path, unread: Collection[str], noted: Mapping[str, str | None] | None) -> dict[str, Any]:
    """A run's result.json, when it and all other files of the run but these are what the run wrote; else ResultError.

    noted   the seals of the manifest
    """
    path = folder / RESULT
    if not path.is_file():
        raise ResultError("there is no finished run here", str(folder), "is this a folder below runs/?")
    text = SCHEMA.checked(read_final(path, noted), str(path), repair_run(folder))
    if not text["metrics"]:
        raise ResultError("this result has no metrics", str(path), repair_run(folder))
    files = {folder / name: content for name, content in text.get("files", {}).items()}
    for i, rank in enumerate(text.get("ranks", ())):
        files |= {of_rank(folder, i) / name: content for name, content in rank["files"].items()}
    for file, content in files.items():
        if file.name in unread:
            continue
        if not file.exists():
            raise ResultError("there is no such file, and the result lists it", str(file), repair_run(folder))
        if digest(file) != content:
            raise ResultError(OTHER, str(file), repair_run(folder))
    return text


def arrays_of(folder: Path, files: Collection[str], log: bool, timeline: bool) -> dict[str, Any]:
    """The large parts of a result."""
    return {
        "timeline": _timeline(folder) if timeline and TIMELINE in files else {},
        "pages": read_arrays(folder / PAGE_LOG) if log and PAGE_LOG in files else None,
        "log": unpack_log(read_arrays(folder / EVENT_LOG)) if log and EVENT_LOG in files else None,
        "program": _program(folder / PROGRAM) if log and PROGRAM in files else None,
    }


def _program(path: Path) -> Trace:
    from gpusim.trace.files import load_trace  # what figures need of a folder is read without it

    return load_trace(path)


def _timeline(folder: Path) -> dict[str, npt.NDArray[Any]]:
    return {name: widen(column) for name, column in renamed(read_arrays(folder / TIMELINE), former.TIMELINE).items()}


def is_logged(run: Path) -> bool:
    """True when the run in this folder kept an event log, of its pages or of its ranks, too."""
    return any((place / name).is_file() for place in (run, of_rank(run, 0)) for name in (EVENT_LOG, PAGE_LOG))
