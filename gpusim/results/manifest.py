"""manifest.json of a results folder: which runs, in which order, from which inputs, measured against which others."""

from __future__ import annotations

import platform
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import Any

from gpusim.base.errors import ResultError
from gpusim.base.files import read_json, write_json
from gpusim.results.references import References
from gpusim.results.schema import MANIFEST as SCHEMA
from gpusim.results.schema import LaterVersion
from gpusim.results.seal import repair, seal_of

NAME = "manifest.json"
RUNS, SEALS, MEASURED, COLUMNS, SAMPLES = "runs", "results", "references", "columns", "samples"  # as schema.ManifestFile


def write(
    out: Path, inputs: Mapping[str, Any], runs: Sequence[str], *, samples: Sequence[str] = (),
    references: Mapping[str, References] | None = None, columns: Mapping[str, int] | None = None,
) -> None:  # fmt: skip
    """Begin: no run has ended; `columns` are files of runs that had, from before."""
    write_json(
        out / NAME,
        {
            **SCHEMA.header(), "inputs": dict(inputs), "versions": versions(), SEALS: {}, COLUMNS: dict(columns or {}),
            **_runs(runs, samples, references),
        },
    )  # fmt: skip


def says(
    value: Mapping[str, Any], runs: Sequence[str], samples: Sequence[str], references: Mapping[str, References] | None
) -> bool:
    """Whether this is the manifest of these runs."""
    wanted = _runs(runs, samples, references)
    return all(value.get(name) == wanted.get(name) for name in (RUNS, MEASURED, SAMPLES))


def _runs(runs: Sequence[str], samples: Sequence[str], references: Mapping[str, References] | None) -> dict[str, Any]:
    measured = {key: {bound: list(runs) for bound, runs in of.items()} for key, of in (references or {}).items()}
    return {RUNS: list(runs), MEASURED: measured, **({SAMPLES: list(samples)} if samples else {})}


def versions() -> dict[str, str]:
    """What the numbers depend on, by distribution name; "" for one that runs from its source without installation."""

    def version(name: str) -> str:
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            return ""

    return {"python": platform.python_version(), **{n: version(n) for n in ("gpusim", "numpy", "numba", "simpy")}}


def note(out: Path, results: Iterable[Path], columns: Mapping[str, int]) -> None:
    """All runs have ended: list the seals of these files, and the columns, where there is a manifest that lists seals."""
    value = read(out)
    if value is not None and SEALS in value:
        seals = {path.parent.name: seal_of(path) for path in results}
        write_json(out / NAME, {**value, SEALS: {**value[SEALS], **seals}, COLUMNS: dict(columns)})
        _read.cache_clear()  # clocks of file systems are coarse


def read(out: Path) -> dict[str, Any] | None:
    """The manifest, read again only when it has changed; None where there is none.

    Raises ResultError: damaged, or of a later version.
    """
    path = out / NAME
    if not path.is_file():
        return None
    found = path.stat()
    return _read(path, (found.st_mtime_ns, found.st_ino, found.st_size))


def usable(out: Path) -> tuple[dict[str, Any], str]:
    """The manifest for a run, which writes it anew: nothing where it is damaged or not there; and why it is damaged.

    Raises ResultError where a later gpusim wrote it.
    """
    try:
        return read(out) or {}, ""
    except LaterVersion:
        raise
    except ResultError as error:
        return {}, f"{error.where}: {error.message}"


@lru_cache(maxsize=4)
def _read(path: Path, stamp: tuple[int, ...]) -> dict[str, Any]:
    again = repair(path.parent)
    return SCHEMA.checked(read_json(path, again), str(path), again)
