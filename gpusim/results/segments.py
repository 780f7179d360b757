"""Runs without a folder each: OUT/columns/NAME.npz, many runs in columns (packed.py).

A file is written once, by the worker that did its runs, and is named after the hash of its content: one that has changed
since is no longer what its name says.  When all runs of an experiment have ended, the files are laid together in the order of
the grid, ROWS runs in each, so that equal experiments leave equal bytes, however their runs came into batches.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from gpusim.base.errors import ResultError
from gpusim.base.files import array_bytes, arrays_of, make_folder, read_bytes, remove, write_atomic
from gpusim.results.packed import Arrays, Row, pack, unpack
from gpusim.results.seal import OTHER, repair

FOLDER, SUFFIX = "columns", ".npz"
ROWS = 8192  # in a file, once the runs have ended
_DIGITS = 32  # of the sha256 that a file is named after


def add(out: Path, rows: Mapping[str, Row]) -> str:
    """Keep these runs, by key; the name of their file.  Raises ResultError: the disk is full, or a value is none of JSON's."""
    content = array_bytes(pack(rows))
    name = _name(content)
    make_folder(out / FOLDER)
    if not (out / FOLDER / name).is_file():
        write_atomic(out / FOLDER / name, lambda file: file.write(content))
    return name


def index(out: Path, laid: Iterable[str] = (), strict: bool = True) -> dict[str, Path]:
    """Key of each run that is here -> its file.

    laid    the files of runs that had ended; what is in another is newer
    strict  raise ResultError for a file that is damaged, or is not there; else do without it
    """
    names = list(laid)
    paths = [out / FOLDER / name for name in [*names, *sorted(_there(out) - {*names})]]
    if not strict:
        bad = damaged(out, names)
        paths = [path for path in paths if path.name not in bad]
    return _index(tuple((path, _stamp(path)) for path in paths)) if paths else {}


@lru_cache(maxsize=4)
def _index(paths: tuple[tuple[Path, tuple[int, ...]], ...]) -> dict[str, Path]:
    return {key: path for path, _ in paths for key in _keys(path)}


def rows(of: Mapping[str, Path], keys: Iterable[str]) -> dict[str, Row]:
    """The runs of these keys in that index, as far as they are there."""
    wanted: dict[Path, list[str]] = {}
    for key in keys:
        if key in of:
            wanted.setdefault(of[key], []).append(key)
    found: dict[str, Row] = {}
    for path, mine in wanted.items():
        try:
            found |= unpack(_arrays(path), mine)
        except (KeyError, ValueError, TypeError, IndexError, AttributeError):
            raise _other(path) from None
    return found


def lay(out: Path, laid: Mapping[str, int], order: Sequence[str]) -> dict[str, int]:
    """Lay all runs together, those of `order` first; file -> runs in it, which the manifest lists.  Files that this has made
    needless stay until `clear`.  Raises ResultError."""
    if _there(out) <= laid.keys():
        return dict(laid)
    of = index(out, laid)
    keys = [*(key for key in dict.fromkeys(order) if key in of), *sorted(of.keys() - set(order))]
    found = {}
    for start in range(0, len(keys), ROWS):
        part = keys[start : start + ROWS]
        here = rows(of, part)
        found[add(out, {key: here[key] for key in part})] = len(part)
    return found


def clear(out: Path, keep: Iterable[str]) -> None:
    """Remove all files but these."""
    for name in _there(out) - set(keep):
        remove(out / FOLDER / name)


def damaged(out: Path, laid: Iterable[str]) -> dict[str, str]:
    """File -> why its runs must be done again."""
    found = {}
    for name in sorted({*laid, *_there(out)}):
        try:
            _keys(out / FOLDER / name)
        except ResultError as error:
            found[name] = f"{error.where}: {error.message}"
    return found


def intact(out: Path, laid: Mapping[str, int]) -> dict[str, int]:
    """Of these files those that are as they were written."""
    bad = damaged(out, laid)
    return {name: runs for name, runs in laid.items() if name not in bad}


def _there(out: Path) -> set[str]:
    folder = out / FOLDER
    return {path.name for path in folder.iterdir() if path.suffix == SUFFIX} if folder.is_dir() else set()


def _keys(path: Path) -> list[str]:
    try:
        return [key.decode() for key in _arrays(path)["keys"].tolist()]
    except (KeyError, AttributeError, ValueError):
        raise _other(path) from None


def _arrays(path: Path) -> Arrays:
    return _read(path, _stamp(path))


def _stamp(path: Path) -> tuple[int, ...]:
    if not path.is_file():
        raise ResultError("there is no such file, and the manifest lists it", str(path), repair(path.parent.parent))
    found = path.stat()
    return found.st_mtime_ns, found.st_ino, found.st_size


@lru_cache(maxsize=16)
def _read(path: Path, stamp: tuple[int, ...]) -> dict[str, Any]:
    content = read_bytes(path)
    if _name(content) != path.name:
        raise _other(path)
    return arrays_of(content, path)


def _other(path: Path) -> ResultError:
    return ResultError(OTHER, str(path), repair(path.parent.parent))


def _name(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:_DIGITS] + SUFFIX
