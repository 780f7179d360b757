"""The run folder: what an experiment leaves on disk, readable without gpusim.

    OUT/experiment.yaml      the experiment with every default and override in place
        manifest.json        which runs, in which order, from which inputs (hashes), with which versions; the seals of results
        machine.json         where it ran; the only file that may differ between two equal experiments
        uncertainty/         what the runs came to on sampled machines, where that was asked for (uncertainty.py)
        summary.csv          a row per run, axes first, units in the headers
        runs/KEY/            one run; KEY is a hash of all that its result depends on
            result.json      spec, outcome, metrics, bounds, the sha256 of its other files, and its own; written last
            timeline.npz     memory over time
            log.npz          the event log, when it was kept; pages.npz of a run under unified memory
            faults.json  what page faults cost, of a run under unified memory, and faults.npz, its picture by time and address
            advice.json  hints that were found to help it, once `gpusim faults` has looked for them
            program.npz      the program that ran, where the log is kept and a plan policy had made another of the trace
        report.md            question, answer, table and figures, and what was not checked
        figures/

A run is finished when its result.json is there, so an interrupted experiment continues where it stopped.  A file that has
changed since the run wrote it is no result: `gpusim run` does the run again, and whatever reads the folder refuses it.
"""

from __future__ import annotations

import csv
import io
import platform
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gpusim.base.defaults import LATER
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
from gpusim.results import fault_picture as pictures
from gpusim.results import faults as report
from gpusim.results.faults import FaultReport
from gpusim.results.log import LOG
from gpusim.results.metrics import METRICS, in_order
from gpusim.results.result import FOR_REFEREE, Result
from gpusim.results.seal import AGAIN, OTHER, note_seals, read_final, read_sealed, write_sealed
from gpusim.results.uncertainty import attached
from gpusim.trace.trace import Trace

FORMAT, VERSION = "gpusim-result", 1
EXPERIMENT, MANIFEST, MACHINE, SUMMARY, RUNS, FIGURES = (
    "experiment.yaml", "manifest.json", "machine.json", "summary.csv", "runs", "figures",
)  # fmt: skip
RESULT, TIMELINE, EVENT_LOG, PROGRAM = "result.json", "timeline.npz", "log.npz", "program.npz"
PAGE_LOG = "pages.npz"
LOGS = (EVENT_LOG, PAGE_LOG, PROGRAM)  # large: read and compared with their hashes only where they are needed
FAULTS, PICTURE, ADVICE = "faults.json", "faults.npz", "advice.json"

# What a run is, with the header of its column; every summary has these, in this order.
AXES = {
    "trace": "trace", "profile": "profile", "memory": "memory [B]", "memory_share": "memory share [1]",
    "host_memory": "host memory [B]", "place": "place", "evict": "evict", "prefetch": "prefetch",
    "defrag": "defrag", "seed": "seed",
}  # fmt: skip
# What follows from those, or only the referee needs.
_DERIVED = ("trace_hash", *FOR_REFEREE, "capacity", "host_capacity", "footprint")


def open_folder(
    out: Path, experiment: str, inputs: Mapping[str, Any], runs: Sequence[str], samples: Sequence[str] = ()
) -> None:
    """Start (or continue) a run folder, before the first run: a folder that cannot be written fails here, in a second.

    experiment  YAML text with everything resolved
    inputs      content hashes of what was read, by name, and the version of the simulator's own code
    runs        the keys of all runs, in the order of the grid
    samples     the names of what is sampled of them
    """
    make_folder(out / RUNS)
    write_text(out / EXPERIMENT, experiment)
    write_json(
        out / MANIFEST,
        {
            "format": FORMAT, "version": VERSION, "inputs": dict(inputs), "runs": list(runs), "versions": versions(),
            "results": {},
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
    """Which file of a finished run, its logs aside, is not the one that it wrote, and why; "" when all are."""
    try:
        if has_result(out, key):
            _read_result(out / RUNS / key, LOGS)
    except ResultError as error:
        return f"{error.where}: {error.message}"
    return ""


def save_result(out: Path, key: str, result: Result) -> Path:
    """Keep one run; returns its folder.  ResultError (disk full, not writable): then the run counts as not run."""
    folder = out / RUNS / key
    make_folder(folder)
    remove(folder / RESULT)  # from here on, until the new one stands, the run is unfinished
    files = {}
    write_arrays(folder / TIMELINE, {name: _narrow(column) for name, column in result.timeline.items()})
    files[TIMELINE] = digest(folder / TIMELINE)
    files |= _save_faults(folder, result.faults)
    if result.log is not None:
        write_arrays(folder / EVENT_LOG, _pack_log(result.log))
        files[EVENT_LOG] = digest(folder / EVENT_LOG)
    else:
        remove(folder / EVENT_LOG)
    if result.pages is not None:
        write_arrays(folder / PAGE_LOG, {name: _narrow(column) for name, column in result.pages.items()})
        files[PAGE_LOG] = digest(folder / PAGE_LOG)
    else:
        remove(folder / PAGE_LOG)
    if result.log is not None and result.program is not None:
        from gpusim.trace.files import save_trace

        save_trace(result.program, folder / PROGRAM)
        files[PROGRAM] = digest(folder / PROGRAM)
    else:
        remove(folder / PROGRAM)
    _write_result(folder, result, files)
    return folder


def _save_faults(folder: Path, faults: FaultReport | None) -> dict[str, str]:
    """The fault report and its picture; the hashes of their files."""
    files = {}
    for name in (FAULTS, PICTURE, ADVICE):
        remove(folder / name)
    if faults is not None:
        write_json(folder / FAULTS, faults.plain())
        files[FAULTS] = digest(folder / FAULTS)
        if faults.picture is not None:
            write_arrays(folder / PICTURE, {name: _narrow(column) for name, column in faults.picture.arrays().items()})
            files[PICTURE] = digest(folder / PICTURE)
    return files


def _faults(folder: Path, files: Mapping[str, str], picture: bool) -> FaultReport | None:
    if FAULTS not in files:
        return None
    found = report.from_plain(read_json(folder / FAULTS))
    if picture and PICTURE in files:
        found = replace(found, picture=pictures.from_arrays(read_arrays(folder / PICTURE)))
    return found


def mark_checked(folder: Path, verdict: bool) -> None:
    """Write the referee's verdict into a run's result.json, and the new seal into the manifest."""
    files = read_sealed(folder / RESULT).get("files", {})
    _write_result(folder, replace(load_result(folder, log=False), checked=verdict), files)
    note_seals(folder.absolute().parent.parent / MANIFEST, [folder / RESULT])


def _write_result(folder: Path, result: Result, files: Mapping[str, str]) -> None:
    write_sealed(
        folder / RESULT,
        {
            "format": FORMAT, "version": VERSION, "files": dict(files),
            **{name: getattr(result, name) for name in ("spec", "outcome", "failure", "metrics", "bounds", "checked")},
        },
    )  # fmt: skip


def _read_result(folder: Path, unread: Collection[str]) -> dict[str, Any]:
    """A run's result.json, when it and all other files of the run but these are what the run wrote; else ResultError."""
    path = folder / RESULT
    if not path.is_file():
        raise ResultError("there is no finished run here", str(folder), "is this a folder below runs/?")
    text = read_final(path, folder.absolute().parent.parent / MANIFEST)
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


def load_result(folder: Path, *, log: bool = True, timeline: bool = True) -> Result:
    """Read one run's folder, with or without its event log and timeline.

    Raises ResultError: not there, damaged, of another version.
    """
    text = _read_result(folder, {*([] if log else LOGS), *([] if timeline else [TIMELINE, PICTURE])})
    files = text.get("files", {})
    try:
        return Result(
            spec=text["spec"],
            outcome=text["outcome"],
            metrics=text["metrics"],
            failure=text["failure"],
            bounds=text["bounds"],
            checked=text["checked"],
            key=folder.name,
            timeline=_timeline(folder) if timeline and TIMELINE in files else {},
            faults=_faults(folder, files, timeline),
            pages=read_arrays(folder / PAGE_LOG) if log and PAGE_LOG in files else None,
            log=_unpack_log(read_arrays(folder / EVENT_LOG)) if log and EVENT_LOG in files else None,
            program=_program(folder / PROGRAM) if log and PROGRAM in files else None,
        )
    except (KeyError, TypeError, AttributeError):
        raise ResultError("this result lacks something", str(folder / RESULT), AGAIN) from None


def _program(path: Path) -> Trace:
    from gpusim.trace.files import load_trace  # what figures need of a folder is read without it

    return load_trace(path)


def _timeline(folder: Path) -> dict[str, npt.NDArray[Any]]:
    return {name: _widen(column) for name, column in read_arrays(folder / TIMELINE).items()}


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


def write_summary(out: Path, results: Iterable[Result]) -> Path:
    """`summary.csv`: axes, outcome, oracle, every metric and bound that a run has, the run's key.  Returns its path."""
    write_text(out / SUMMARY, summary(list(results)))
    return out / SUMMARY


def summary(results: Sequence[Result]) -> str:
    """The text of summary.csv; numbers in full precision, an empty cell where a run has no such number.

    The makespan of a run that did not finish is left out: it is shorter than that of any run that did.
    """
    columns = {**AXES, **{axis: axis for axis in axes(results) if axis not in AXES}}
    names = in_order({name for result in results for name in (*result.metrics, *result.bounds)})
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*columns.values(), "outcome", "oracle", "checked", *(METRICS[n].header for n in names), "run"])
    for result in results:
        verdict = {True: "yes", False: "no", None: "unchecked"}[result.checked]
        numbers = {**result.bounds, **result.metrics}
        if not result.finished:
            numbers.pop("makespan_ns", None)
        writer.writerow([
            *(result.spec.get(axis, LATER.get(axis)) for axis in columns),
            result.outcome, "yes" if result.oracle else "no", verdict, *(numbers.get(name) for name in names), result.key,
        ])  # fmt: skip
    return text.getvalue()


def axes(results: Sequence[Result]) -> list[str]:
    """The keys of `spec` in which these results differ, numbers and words only: those of AXES first."""
    keys = dict.fromkeys([*AXES, *(key for result in results for key in result.spec)])
    values = {key: [result.spec.get(key, LATER.get(key)) for result in results] for key in keys if key not in _DERIVED}
    return [
        key
        for key, column in values.items()
        if len(set(map(repr, column))) > 1 and all(isinstance(v, str | int | float | None) for v in column)
    ]


# --- arrays on disk ---------------------------------------------------------------------------------------------------


def _narrow(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Integers in the smallest signed type that holds them; floats as they are."""
    if values.dtype.kind in "iu" and len(values):
        low, high = values.min(), values.max()
        for small in (np.int8, np.int16, np.int32):
            if np.iinfo(small).min <= low and high <= np.iinfo(small).max:
                return values.astype(small)
    return values


def _widen(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return values.astype(np.int64) if values.dtype.kind in "iu" else values


def _pack_log(log: npt.NDArray[Any]) -> dict[str, npt.NDArray[Any]]:
    columns = {name: log[name] for name in LOG.names or ()}
    columns["t"] = np.diff(columns["t"], prepend=np.int64(0))  # time only grows: differences are small
    return {name: _narrow(column) for name, column in columns.items()}


def _unpack_log(columns: Mapping[str, npt.NDArray[Any]]) -> npt.NDArray[Any]:
    log = np.zeros(len(columns["t"]), LOG)
    for name in LOG.names or ():
        log[name] = np.cumsum(columns[name], dtype=np.int64) if name == "t" else columns[name]
    return log
