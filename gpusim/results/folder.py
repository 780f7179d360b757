"""The results folder: what an experiment leaves on disk, readable without gpusim.

    OUT/experiment.yaml      the experiment with every default and override in place
        manifest.json        which runs, in which order, from which inputs (hashes), with which versions; which runs they are
                             measured against (references.py); the seals of results (manifest.py)
        machine.json         where it ran; the only file that may differ between two equal experiments
        uncertainty/         what the runs came to on sampled machines, where that was asked for (uncertainty.py)
        summary.csv          a row per run, axes first (summary.py)
        runs/KEY/            one run (run_files.py); KEY is a hash of all that its result depends on
            result.json      spec, outcome, metrics, bounds, the sha256 of its other files, and its own; written last, once
            timeline.npz     memory over time
            log.npz          the event log, when it was kept; pages.npz of a run under unified memory
            ranks/N/         timeline and log of a rank, of a run that has several
            faults.json      what page faults cost, of a run under unified memory; faults.npz is its picture by time and address
            program.npz      the program that ran, where the log is kept and a plan policy had made another of the trace
            verdict.json     what the referee says, once `gpusim check` has asked it (afterwards.py)
            advice.json      hints that were found to help it, once `gpusim faults` has looked for them
        columns/NAME.npz     many runs in columns, in the place of their folders (segments.py)
        report.md            question, answer, table and figures, and what was not checked
        figures/

A run is finished when its result.json is there, or its row in columns, so an interrupted experiment continues where it stopped.
A file that has changed since the run wrote it is no result: `gpusim run` does the run again, and whatever reads the folder
refuses it.  A run in columns has no timeline, no log and no picture of its faults; its path is OUT/runs/KEY all the same.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from gpusim.base.errors import ResultError, note
from gpusim.base.files import (
    make_folder,
    read_json,
    remove,
    write_json,
    write_text,
)
from gpusim.results import afterwards, manifest, segments
from gpusim.results import faults as report
from gpusim.results import renamed as former
from gpusim.results import seal as seals
from gpusim.results.afterwards import RESULT, VERDICT
from gpusim.results.manifest import NAME as MANIFEST
from gpusim.results.packed import Row
from gpusim.results.references import References, measure
from gpusim.results.result import FINISHED, Result
from gpusim.results.run_files import (
    EVENT_LOG,
    FIELDS,
    LOGS,
    PICTURE,
    TIMELINE,
    arrays_of,
    faults_of,
    of_rank,
    read_run,
    row_of,
    save_run,
)
from gpusim.results.seal import read_final, repair_run
from gpusim.results.uncertainty import attached

COLUMNS_FROM = 2000
"""Runs, references among them, from which on an experiment that keeps no logs lays its runs in columns."""
EXPERIMENT, MACHINE, RUNS, FIGURES = seals.EXPERIMENT, "machine.json", "runs", "figures"


def in_columns(runs: int, files: bool) -> bool:
    """Where so many runs are kept: in columns, or each in a folder of its own.  The one rule for all that writes results.

    files   some of them keep more than numbers: a log, or ranks
    """
    return runs >= COLUMNS_FROM and not files


def open_folder(
    out: Path, experiment: str, inputs: Mapping[str, Any], runs: Sequence[str], *, samples: Sequence[str] = (),
    references: Mapping[str, References] | None = None, waiting: bool = True,
) -> None:  # fmt: skip
    """Start (or continue) a results folder, before the first run: one that cannot be written fails here, in a second.

    experiment  YAML text with everything resolved
    inputs      content hashes of what was read, by name, and the version of the simulator's own code
    runs        the keys of all runs, in the order of the grid
    samples     the names of what is sampled of them
    references  of each run the runs that it is measured against
    waiting     runs wait to be done; else a manifest of these runs stays as it is, which may lie on a read-only disk
    """
    before, _ = manifest.usable(out)
    make_folder(out / RUNS)
    write_text(out / EXPERIMENT, experiment)
    if not waiting and manifest.says(before, runs, samples, references):
        return
    columns = segments.intact(out, before.get(manifest.COLUMNS, {}))
    manifest.write(out, inputs, runs, samples=samples, references=references, columns=columns)
    here = {"platform": platform.platform(), "processor": platform.machine()}
    if not here.items() <= said_of_machine(out).items():
        write_json(out / MACHINE, here)


def said_of_machine(out: Path) -> dict[str, Any]:
    """What machine.json says; nothing where it is not there, or damaged: no result depends on it."""
    try:
        return read_json(out / MACHINE)
    except ResultError:
        return {}


def note_results(out: Path, keys: Iterable[str]) -> None:
    """All runs have ended, and are final from now on: lay those in columns together, in the order of `keys`, and write the
    seals of all into the manifest, where there is one."""
    keys = list(keys)
    columns = segments.lay(out, _columns(out), keys)
    folders = _folders(out)
    manifest.note(out, [out / RUNS / key / RESULT for key in keys if key in folders], columns)
    segments.clear(out, columns)


def has_result(out: Path, key: str) -> bool:
    """True when this run is finished."""
    return (out / RUNS / key / RESULT).is_file() or key in segments.index(out, _columns(out))


def finished(out: Path) -> set[str]:
    """The keys of all runs that are finished.  Raises ResultError where columns are damaged."""
    return _folders(out) | segments.index(out, _columns(out)).keys()


def intact(out: Path) -> set[str]:
    """The same, but for those in columns that are damaged."""
    laid, _ = manifest.usable(out)
    return _folders(out) | segments.index(out, segments.intact(out, laid.get(manifest.COLUMNS, {})), strict=False).keys()


def changed(out: Path, keys: Iterable[str]) -> dict[str, str]:
    """Of finished runs with a folder: which file, its logs aside, is not the one that was written, and why; by key."""
    noted = manifest.usable(out)[0].get(manifest.SEALS)
    found = {}
    for key in sorted(_folders(out) & set(keys)):
        folder = out / RUNS / key
        try:
            read_run(folder, LOGS, noted)
            for name in (VERDICT, afterwards.ADVICE):
                afterwards.kept(folder, name)
        except ResultError as error:
            found[key] = f"{error.where}: {error.message}"
    return found


def damaged(out: Path) -> dict[str, str]:
    """Files of many runs, by path, that are not as they were written, and why: manifest.json, and columns."""
    found, why = manifest.usable(out)
    laid = segments.damaged(out, found.get(manifest.COLUMNS, {}))
    return {**({str(out / MANIFEST): why} if why else {}), **{str(out / segments.FOLDER / name): w for name, w in laid.items()}}


def discard(out: Path, keys: Iterable[str], files: Iterable[str]) -> None:
    """Remove results that no run wrote, and such columns: they must not stay where the run fails now."""
    for key in keys:
        remove(out / RUNS / key / RESULT)
    for file in map(Path, files):
        if file.parent.name == segments.FOLDER:  # the manifest is written anew
            remove(file)


def save_results(out: Path, results: Mapping[str, Result]) -> None:
    """Keep runs, by key, in columns.  ResultError (disk full, not writable): then they count as not run."""
    if results:
        segments.add(out, {key: row_of(result) for key, result in results.items()})


def save_result(out: Path, key: str, result: Result) -> Path:
    """Keep one run in its folder, which is returned.  ResultError (disk full, not writable): then it counts as not run."""
    folder = out / RUNS / key
    save_run(folder, result)
    return folder


def mark_checked(folder: Path, verdict: bool) -> None:
    """Keep the referee's verdict on a run beside its result.  Raises ResultError, also when the run's files have changed."""
    read_run(folder, LOGS, _noted(folder))
    afterwards.keep(folder, VERDICT, {"right": verdict})


def _out(folder: Path) -> Path:
    """The results folder that the run in this folder belongs to."""
    return folder.absolute().parent.parent


def _noted(folder: Path) -> dict[str, str | None] | None:
    """The seals that the manifest has noted; None where there is none, or an earlier version kept none."""
    return (manifest.read(_out(folder)) or {}).get(manifest.SEALS)


def _columns(out: Path) -> dict[str, int]:
    """The files of runs in columns that the manifest lists."""
    found: dict[str, int] = (manifest.read(out) or {}).get(manifest.COLUMNS, {})
    return found


def _folders(out: Path) -> set[str]:
    """The keys of finished runs that have a folder."""
    runs = out / RUNS
    return {path.name for path in runs.iterdir() if (path / RESULT).is_file()} if runs.is_dir() else set()


def load_result(folder: Path, *, log: bool = True, timeline: bool = True) -> Result:
    """Read one run, with or without its event log and timeline; its references give some of its bounds and metrics.

    Raises ResultError: not there, damaged, of another version.
    """
    out, key = _out(folder), folder.name
    if not (folder / RESULT).is_file():
        of = segments.index(out, _columns(out))
        row = segments.rows(of, [key])
        if row:
            return _from_row(out, key, row[key], _makespans(out, of))
    return _from_folder(folder, log, timeline, _makespans(out, {}))


def _from_row(out: Path, key: str, row: Row, makespan: Callable[[str], int | None]) -> Result:
    """A run in columns."""
    verdict = afterwards.kept(out / RUNS / key, VERDICT) or {}
    faults = None if row["faults"] is None else report.from_plain(row["faults"])
    return _result(row, out, key, makespan, checked=verdict.get("right"), faults=faults)


def _from_folder(folder: Path, log: bool, timeline: bool, makespan: Callable[[str], int | None]) -> Result:
    unread = {*([] if log else LOGS), *([] if timeline else [TIMELINE, PICTURE])}
    text = read_run(folder, unread, _noted(folder))
    files = text.get("files", {})
    try:
        verdict = afterwards.kept(folder, VERDICT) or {}
        return _result(
            text, _out(folder), folder.name, makespan,
            checked=verdict.get("right", text.get("checked")),  # in results of earlier versions the verdict stands in them
            faults=faults_of(folder, files, timeline), **arrays_of(folder, files, log, timeline),
            ranks=tuple(
                Result(**{name: rank[name] for name in FIELDS}, **arrays_of(of_rank(folder, i), rank["files"], log, timeline))
                for i, rank in enumerate(text.get("ranks", ()))
            ),
        )  # fmt: skip
    except (KeyError, TypeError, AttributeError):
        raise ResultError("this result lacks something", str(folder / RESULT), repair_run(folder)) from None


def _result(text: Row, out: Path, key: str, makespan: Callable[[str], int | None], **others: Any) -> Result:
    """The result of which `text` says what was kept, under the names of today and against its references."""
    bounds, metrics = dict(text["bounds"]), former.metrics(text["spec"], text["metrics"])
    references = (manifest.read(out) or {}).get(manifest.MEASURED, {}).get(key)
    if references:
        measure(bounds, metrics, text["outcome"] == FINISHED, references, makespan)
    spec, outcome, failure = former.spec(text["spec"]), text["outcome"], text["failure"]
    return Result(spec=spec, outcome=outcome, metrics=metrics, failure=failure, bounds=bounds, key=key, **others)


def _makespans(out: Path, of: Mapping[str, Path]) -> Callable[[str], int | None]:
    """What gives the makespan of a run by key, ns; None where it is not there or did not finish.

    of  the index of those in columns
    """
    noted = (manifest.read(out) or {}).get(manifest.SEALS)

    def makespan(key: str) -> int | None:
        path = out / RUNS / key / RESULT
        if path.is_file():
            found = path.stat()
            seals = None if noted is None else tuple(seal for seal in (noted.get(key),) if seal)
            return _makespan_in(path, (found.st_mtime_ns, found.st_ino, found.st_size), seals)
        return None if key not in of else _makespan_of(segments.rows(of, [key])[key])

    return makespan


def _makespan_of(text: Row) -> int | None:
    time = text["metrics"].get("makespan_ns")
    return int(time) if text["outcome"] == FINISHED and time is not None else None


@lru_cache(maxsize=4096)
def _makespan_in(path: Path, stamp: tuple[int, ...], noted: tuple[str, ...] | None) -> int | None:
    """`noted`: what the manifest has noted of the run; None where it notes nothing."""
    return _makespan_of(read_final(path, None if noted is None else dict(zip([path.parent.name], noted, strict=False))))


def run_folders(out: Path) -> list[Path]:
    """The folders of the finished runs of OUT, in the order of the grid; OUT may itself be the folder of one run.

    Runs in columns have none, and `load_result` reads them by the same path.  ResultError when there is none.
    """
    if (out / RESULT).is_file():
        return [out]
    if not out.exists():
        raise ResultError("there is no such folder", str(out), "`gpusim run` makes one of results")
    if not (out / RUNS).is_dir():
        raise ResultError("this is not a results folder", str(out), f"it has no {RUNS}/; `gpusim run` makes one")
    there, listed = finished(out), manifest.read(out)
    if listed is None:
        note(f"{out / MANIFEST}: there is no such file, so references count as runs of the grid ({seals.repair(out)})")
    keys = sorted(there) if listed is None else listed[manifest.RUNS]
    found = [out / RUNS / key for key in dict.fromkeys(keys) if key in there]
    if not found:
        raise ResultError("no run of this folder is finished", str(out), "the same `gpusim run` goes on where it stopped")
    return found


def missing(out: Path) -> int:
    """How many runs of the grid have no result: it was stopped, still runs, or they failed; 0 for the folder of one run."""
    listed = manifest.read(out)
    return 0 if listed is None else len({*listed[manifest.RUNS]} - finished(out))


def load_folder(out: Path, *, log: bool = False, timeline: bool = True) -> list[Result]:
    """All finished runs of a results folder, in the order of the grid; without their logs unless asked."""
    folders = run_folders(out)
    if (out / RESULT).is_file():
        return [load_result(out, log=log, timeline=timeline)]
    apart, of, found = _folders(out), segments.index(out, _columns(out)), []
    rows = segments.rows(of, of.keys() - apart)
    known = {key: _makespan_of(row) for key, row in rows.items()}
    further = _makespans(out, {})

    def makespan(key: str) -> int | None:
        return known[key] if key in known else further(key)

    for folder in folders:
        key = folder.name
        if key in rows:
            found.append(_from_row(out, key, rows.pop(key), makespan))
        else:
            found.append(_from_folder(folder, log, timeline, makespan))
    return attached(out, sampled_in(out), found)


def sampled_in(out: Path) -> list[str]:
    """The names of what is sampled of the runs of this folder; none where there is no folder yet."""
    return list(manifest.usable(out)[0].get(manifest.SAMPLES, []))


def has_log(out: Path) -> bool:
    """True when a finished run of this folder kept its event log."""
    return any((out / RUNS / key / EVENT_LOG).is_file() for key in _folders(out)) or (out / EVENT_LOG).is_file()
