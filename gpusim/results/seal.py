"""Whether a result is still the one that its run wrote: it carries the hash of all its other bytes, its seal, and when all
runs of an experiment have ended the manifest lists the seals."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from gpusim.base.errors import ResultError, note
from gpusim.base.files import json_text, read_bytes, read_json, write_json, write_text

SEAL = "seal"
OTHER, AGAIN = "this file is not the one that the run wrote", "run again with --force"
NOTED = "results"  # in the manifest: folder of the run -> seal; empty while runs are under way
_EMPTY = "0" * 64
_LINE = re.compile(rb'^ "seal": "([0-9a-f]{64})"', re.MULTILINE)  # of the object itself: what is deeper has more spaces


def write_sealed(path: Path, value: Mapping[str, Any]) -> None:
    """The object as JSON, with its seal."""
    text = json_text({**value, SEAL: _EMPTY}, path)
    write_text(path, text.replace(f' "{SEAL}": "{_EMPTY}"', f' "{SEAL}": "{hashlib.sha256(text.encode()).hexdigest()}"', 1))


def read_sealed(path: Path) -> dict[str, Any]:
    """The object in the file, its seal included unless it was written without one; ResultError when the file has changed."""
    value = read_json(path)
    if SEAL in value and seal_of(path) is None:
        raise ResultError(OTHER, str(path), AGAIN)
    return value


def seal_of(path: Path) -> str | None:
    """The seal of the file; None when it has none, or one that does not fit."""
    raw = read_bytes(path)
    found = _LINE.search(raw)
    if found is None:
        return None
    empty = raw[: found.start(1)] + _EMPTY.encode() + raw[found.end(1) :]
    return found[1].decode() if hashlib.sha256(empty).hexdigest() == found[1].decode() else None


def note_seals(manifest: Path, results: Iterable[Path]) -> None:
    """List the seals of these files in the manifest, where there is one that lists any."""
    value = read_json(manifest) if manifest.is_file() else {}
    if NOTED in value:
        seals = {path.parent.name: seal_of(path) for path in results}
        write_json(manifest, {**value, NOTED: {**value[NOTED], **seals}})
        _read_manifest.cache_clear()  # clocks of file systems are coarse


def read_final(path: Path, manifest: Path) -> dict[str, Any]:
    """A sealed file as the manifest knows it; ResultError when it has changed."""
    value = read_sealed(path)
    noted = (read_manifest(manifest) or {}).get(NOTED)
    if isinstance(noted, dict) and value.get(SEAL) != noted.get(path.parent.name, value.get(SEAL, "")):
        raise ResultError(OTHER, str(path), AGAIN)
    if SEAL not in value:
        note(f"{path.parent}: an earlier version kept no hash of this result, so whether it was changed cannot be told")
    return value


def read_manifest(path: Path) -> dict[str, Any] | None:
    """A manifest, read again only when it has changed; None where there is none."""
    if not path.is_file():
        return None
    found = path.stat()
    return _read_manifest(path, (found.st_mtime_ns, found.st_ino, found.st_size))


@lru_cache(maxsize=4)
def _read_manifest(path: Path, stamp: tuple[int, ...]) -> dict[str, Any]:
    return read_json(path)
