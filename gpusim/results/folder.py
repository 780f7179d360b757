"""The run folder: what an experiment leaves on disk, readable without gpusim.

    OUT/experiment.yaml      the experiment with every default and override in place
        manifest.json        which runs, in which order, from which inputs (hashes), with which versions; which runs they are
                             measured against (references.py); the seals of results
        machine.json         where it ran; the only file that may differ between two equal experiments
        uncertainty/         what the runs came to on sampled machines, where that was asked for (uncertainty.py)
        summary.csv          a row per run, axes first (summary.py)
        runs/KEY/            one run; KEY is a hash of all that its result depends on
            result.json      spec, outcome, metrics, bounds, the sha256 of its other files, and its own; written last, once
            timeline.npz     memory over time
            log.npz          the event log, when it was kept; pages.npz of a run under unified memory
            faults.json      what page faults cost, of a run under unified memory; faults.npz is its picture by time and address
            program.npz      the program that ran, where the log is kept and a plan policy had made another of the trace
            verdict.json     what the referee says, once `gpusim check` has asked it (afterwards.py)
            advice.json      hints that were found to help it, once `gpusim faults` has looked for them
        report.md            question, answer, table and figures, and what was not checked
        figures/

A run is finished when its result.json is there, so an interrupted experiment continues where it stopped.  A file that has
changed since the run wrote it is no result: `gpusim run` does the run again, and whatever reads the folder refuses it.
"""

from __future__ import annotations

import platform
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy.typing as npt

from gpusim.base.errors import ResultError
from gpusim.base.files import (
    digest,
    make_folder,
    read_arrays,
    read_json,
    remove,
    write_arrays,
    write_json,
    write_text,
)
from gpusim.results import afterwards
from gpusim.results import fault_picture as pictures
from gpusim.results import faults as report
from gpusim.results import renamed as former
from gpusim.results.afterwards import RESULT, VERDICT
from gpusim.results.columns import narrow, pack_log, unpack_log, widen
from gpusim.results.faults import FaultReport
from gpusim.results.references import References, against
from gpusim.results.renamed import renamed
from gpusim.results.result import FINISHED, Result
from gpusim.results.seal import AGAIN, OTHER, note_seals, read_final, read_manifest, write_sealed
from gpusim.results.uncertainty import attached
from gpusim.trace.trace import Trace

FORMAT, VERSION = "gpusim-result", 1
EXPERIMENT, MANIFEST, MACHINE, RUNS, FIGURES = "experiment.yaml", "manifest.json", "machine.json", "runs", "figures"
TIMELINE, EVENT_LOG, PROGRAM = "timeline.npz", "log.npz", "program.npz"
PAGE_LOG = "pages.npz"
LOGS = (EVENT_LOG, PAGE_LOG, PROGRAM)  # large: read and compared with their hashes only where they are needed
FAULTS, PICTURE = "faults.json", "faults.npz"
_MEASURED = "references"  # in the manifest: key of a run -> bound -> keys of the runs that it is measured against


def open_folder(
    out: Path, experiment: str, inputs: Mapping[str, Any], runs: Sequence[str], *, samples: Sequence[str] = (),
    references: Mapping[str, References] | None = None,
) -> None:  # fmt: skip
    """Start (or continue) a run folder, before the first run: a folder that cannot be written fails here, in a second.

    experiment  YAML text with everything resolved
    inputs      content hashes of what was read, by name, and the version of the simulator's own code
    runs        the keys of all runs, in the order of the grid
    samples     the names of what is sampled of them
    references  of each run the runs that it is measured against
    """
    make_folder(out / RUNS)
    write_text(out / EXPERIMENT, experiment)
    write_json(
        out / MANIFEST,
        {
            "format": FORMAT, "version": VERSION, "inputs": dict(inputs), "runs": list(runs), "versions": versions(),
            "results": {},
            _MEASURED: {key: {bound: list(runs) for bound, runs in of.items()} for key, of in (references or {}).items()},
            **({"samples": list(samples)} if samples else {}),
        },
    )  # fmt: skip
    write_json(out / MACHINE, {"platform": platform.platform(), "processor": platform.machine()})


def versions() -> dict[str, str]:
    """What the numbers depend on, by distribution name; "" for one that runs from its source without installation."""

    def version(name: str) -> str:
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            return ""

    return {"python": platform.python_version(), **{n: version(n) for n in ("gpusim", "numpy", "numba", "simpy")}}


def note_results(out: Path, keys: Iterable[str]) -> None:
    """Write the seals of these results into the manifest, where there is one: from now on they are final."""
    note_seals(out / MANIFEST, [out / RUNS / key / RESULT for key in keys if has_result(out, key)])


def has_result(out: Path, key: str) -> bool:
    """True when this run is finished."""
    return (out / RUNS / key / RESULT).is_file()


def changed(out: Path, key: str) -> str:
    """Which file of a finished run, its logs aside, is not the one that was written, and why; "" when all are."""
    folder = out / RUNS / key
    try:
        if has_result(out, key):
            _read_result(folder, LOGS)
            for name in (VERDICT, afterwards.ADVICE):
                afterwards.kept(folder, name)
    except ResultError as error:
        return f"{error.where}: {error.message}"
    return ""


def save_result(out: Path, key: str, result: Result) -> Path:
    """Keep one run; returns its folder.  ResultError (disk full, not writable): then the run counts as not run."""
    folder = out / RUNS / key
    make_folder(folder)
    remove(folder / RESULT)  # from here on, until the new one stands, the run is unfinished
    afterwards.forget(folder)
    files = _save_files(folder, result)
    fields = ("spec", "outcome", "failure", "metrics", "bounds")
    value = {"format": FORMAT, "version": VERSION, "files": files, **{name: getattr(result, name) for name in fields}}
    write_sealed(folder / RESULT, value)
    return folder


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


def _faults(folder: Path, files: Mapping[str, str], picture: bool) -> FaultReport | None:
    if FAULTS not in files:
        return None
    found = report.from_plain(read_json(folder / FAULTS))
    if picture and PICTURE in files:
        found = replace(found, picture=pictures.from_arrays(read_arrays(folder / PICTURE)))
    return found


def mark_checked(folder: Path, verdict: bool) -> None:
    """Keep the referee's verdict on a run beside its result.  Raises ResultError, also when the run's files have changed."""
    _read_result(folder, LOGS)
    afterwards.keep(folder, VERDICT, {"right": verdict})


def _read_result(folder: Path, unread: Collection[str]) -> dict[str, Any]:
    """A run's result.json, when it and all other files of the run but these are what the run wrote; else ResultError."""
    path = folder / RESULT
    if not path.is_file():
        raise ResultError("there is no finished run here", str(folder), "is this a folder below runs/?")
    text = read_final(path, _manifest(folder))
    if text.get("format") != FORMAT or text.get("version") != VERSION:
        raise ResultError(
            f"this is not a result that this program reads (format {FORMAT}, version {VERSION})", str(path), AGAIN
        )
    if not text.get("metrics"):
        raise ResultError("this result has no metrics", str(path), AGAIN)
    for name, content in text.get("files", {}).items():
        if name not in unread and digest(folder / name) != content:
            raise ResultError(OTHER, str(folder / name), AGAIN)
    return text


def _manifest(folder: Path) -> Path:
    """The manifest that knows the run in this folder."""
    return folder.absolute().parent.parent / MANIFEST


def load_result(folder: Path, *, log: bool = True, timeline: bool = True) -> Result:
    """Read one run's folder, with or without its event log and timeline; its references give some of its bounds and metrics.

    Raises ResultError: not there, damaged, of another version.
    """
    text = _read_result(folder, {*([] if log else LOGS), *([] if timeline else [TIMELINE, PICTURE])})
    files = text.get("files", {})
    try:
        verdict = afterwards.kept(folder, VERDICT) or {}
        found = Result(
            spec=former.spec(text["spec"]),
            outcome=text["outcome"],
            metrics=former.metrics(text["spec"], text["metrics"]),
            failure=text["failure"],
            bounds=text["bounds"],
            checked=verdict.get("right", text.get("checked")),  # in results of earlier versions the verdict stands in them
            key=folder.name,
            timeline=_timeline(folder) if timeline and TIMELINE in files else {},
            faults=_faults(folder, files, timeline),
            pages=read_arrays(folder / PAGE_LOG) if log and PAGE_LOG in files else None,
            log=unpack_log(read_arrays(folder / EVENT_LOG)) if log and EVENT_LOG in files else None,
            program=_program(folder / PROGRAM) if log and PROGRAM in files else None,
        )
    except (KeyError, TypeError, AttributeError):
        raise ResultError("this result lacks something", str(folder / RESULT), AGAIN) from None
    references = (read_manifest(_manifest(folder)) or {}).get(_MEASURED, {}).get(folder.name)
    return against(found, references, lambda key: _makespan(folder.parent / key)) if references else found


def _makespan(folder: Path) -> int | None:
    """Of a run, ns; None where it is not there or did not finish."""
    path = folder / RESULT
    if not path.is_file():
        return None
    found = path.stat()
    return _makespan_in(path, (found.st_mtime_ns, found.st_ino, found.st_size))


@lru_cache(maxsize=4096)
def _makespan_in(path: Path, stamp: tuple[int, ...]) -> int | None:
    text = read_final(path, _manifest(path.parent))
    time = text.get("metrics", {}).get("makespan_ns")
    return int(time) if text.get("outcome") == FINISHED and time is not None else None


def _program(path: Path) -> Trace:
    from gpusim.trace.files import load_trace  # what figures need of a folder is read without it

    return load_trace(path)


def _timeline(folder: Path) -> dict[str, npt.NDArray[Any]]:
    return {name: widen(column) for name, column in renamed(read_arrays(folder / TIMELINE), former.TIMELINE).items()}


def run_folders(out: Path) -> list[Path]:
    """The folders of the finished runs of OUT, in the order of the grid; OUT may itself be the folder of one run.

    ResultError when there is none.
    """
    if (out / RESULT).is_file():
        return [out]
    if not out.exists():
        raise ResultError("there is no such folder", str(out), "`gpusim run` makes one of results")
    if not (out / RUNS).is_dir():
        raise ResultError("this is not a results folder", str(out), f"it has no {RUNS}/; `gpusim run` makes one")
    if (out / MANIFEST).is_file():
        keys = [str(key) for key in read_json(out / MANIFEST).get("runs", [])]
    else:
        keys = sorted(path.name for path in (out / RUNS).iterdir())
    found = [out / RUNS / key for key in dict.fromkeys(keys) if has_result(out, key)]
    if not found:
        raise ResultError("no run of this folder is finished", str(out), "the same `gpusim run` goes on where it stopped")
    return found


def missing(out: Path) -> int:
    """How many runs of the grid have no result: it was stopped, still runs, or they failed; 0 for the folder of one run."""
    if not (out / MANIFEST).is_file():
        return 0
    return sum(not has_result(out, str(key)) for key in dict.fromkeys(read_json(out / MANIFEST).get("runs", [])))


def load_folder(out: Path, *, log: bool = False, timeline: bool = True) -> list[Result]:
    """All finished runs of a results folder, in the order of the grid; without their logs unless asked."""
    found = [load_result(folder, log=log, timeline=timeline) for folder in run_folders(out)]
    return attached(out, sampled_in(out), found)


def sampled_in(out: Path) -> list[str]:
    """The names of what is sampled of the runs of this folder; none where there is no folder yet."""
    manifest = read_json(out / MANIFEST) if (out / MANIFEST).is_file() else {}
    return [str(name) for name in manifest.get("samples", [])]


def has_log(out: Path) -> bool:
    """True when a finished run of this folder kept its event log."""
    return any((folder / EVENT_LOG).is_file() for folder in run_folders(out))
