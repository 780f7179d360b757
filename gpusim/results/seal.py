"""Whether a result is still the one that its run wrote: it carries the hash of all its other bytes, its seal, and when all
runs of an experiment have ended the manifest lists the seals."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gpusim.base.errors import ResultError, note
from gpusim.base.files import json_text, read_bytes, read_json, write_text

SEAL = "seal"
OTHER, AGAIN = "this file is not the one that the run wrote", "run again with --force"
EXPERIMENT = "experiment.yaml"
_EMPTY = "0" * 64
_LINE = re.compile(rb'^ "seal": "([0-9a-f]{64})"', re.MULTILINE)  # of the object itself: what is deeper has more spaces


def repair(out: Path) -> str:
    """The command that does what is damaged or missing in this results folder again, and nothing else."""
    return f"`gpusim run {out / EXPERIMENT} -o {out}` does it again"


def repair_run(folder: Path) -> str:
    """The same of the folder of a run."""
    return repair(folder.parent.parent)


def write_sealed(path: Path, value: Mapping[str, Any]) -> None:
    """The object as JSON, with its seal."""
    text = json_text({**value, SEAL: _EMPTY}, path)
    write_text(path, text.replace(f' "{SEAL}": "{_EMPTY}"', f' "{SEAL}": "{hashlib.sha256(text.encode()).hexdigest()}"', 1))


def read_sealed(path: Path, again: str = AGAIN) -> dict[str, Any]:
    """The object in the file, its seal included unless it was written without one.

    again  what makes the file anew

    Raises ResultError when the file has changed.
    """
    value = read_json(path, again)
    if SEAL in value and seal_of(path) is None:
        raise ResultError(OTHER, str(path), again)
    return value


def seal_of(path: Path) -> str | None:
    """The seal of the file; None when it has none, or one that does not fit."""
    raw = read_bytes(path)
    found = _LINE.search(raw)
    if found is None:
        return None
    empty = raw[: found.start(1)] + _EMPTY.encode() + raw[found.end(1) :]
    return found[1].decode() if hashlib.sha256(empty).hexdigest() == found[1].decode() else None


def read_final(path: Path, noted: Mapping[str, str | None] | None) -> dict[str, Any]:
    """A sealed file, whose seal is the one that the manifest has noted for its folder; ResultError when it has changed."""
    value = read_sealed(path, repair_run(path.parent))
    if noted is not None and value.get(SEAL) != noted.get(path.parent.name, value.get(SEAL, "")):
        raise ResultError(OTHER, str(path), repair_run(path.parent))
    if SEAL not in value:
        note(f"{path.parent}: an earlier version kept no hash of this result, so whether it was changed cannot be told")
    return value
