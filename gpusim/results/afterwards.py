"""What is found out about a run after it has ended: files beside its result, which itself is never written again.

    verdict.json   what the referee says of the run's log
    advice.json    hints to the driver that were found to help it

Each carries a seal of its own and names the seal of the result that it is about.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gpusim.base.errors import ResultError
from gpusim.base.files import make_folder, remove
from gpusim.results.seal import OTHER, SEAL, read_sealed, repair_run, seal_of, write_sealed

RESULT, VERDICT, ADVICE = "result.json", "verdict.json", "advice.json"
_ABOUT = "result"


def keep(folder: Path, name: str, found: Mapping[str, Any]) -> None:
    """Write what was found about the run in this folder.  Raises ResultError: the disk is full, or not to be written."""
    make_folder(folder)  # runs in columns have none
    write_sealed(folder / name, {_ABOUT: _seal(folder), "found": dict(found)})


def kept(folder: Path, name: str) -> dict[str, Any] | None:
    """What was found about the result in this folder; None where that was not asked for, or only about another result.

    Raises ResultError when the file has changed since.
    """
    path = folder / name
    if not path.is_file():
        return None
    value = read_sealed(path, repair_run(folder))
    found = value.get("found")
    if SEAL not in value or not isinstance(found, dict):
        raise ResultError(OTHER, str(path), repair_run(folder))
    return found if value.get(_ABOUT) == _seal(folder) else None


def _seal(folder: Path) -> str | None:
    """Of the result; None of a run in columns, whose name says what it is."""
    return seal_of(folder / RESULT) if (folder / RESULT).is_file() else None


def forget(folder: Path) -> None:
    """Remove what was found about a result that is to be replaced."""
    for name in (VERDICT, ADVICE):
        remove(folder / name)
