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
from gpusim.base.files import remove
from gpusim.results.seal import AGAIN, OTHER, read_sealed, seal_of, write_sealed

RESULT, VERDICT, ADVICE = "result.json", "verdict.json", "advice.json"
_ABOUT = "result"


def keep(folder: Path, name: str, found: Mapping[str, Any]) -> None:
    """Write what was found about the run in this folder.  Raises ResultError: the disk is full, or not to be written."""
    write_sealed(folder / name, {_ABOUT: seal_of(folder / RESULT), "found": dict(found)})


def kept(folder: Path, name: str) -> dict[str, Any] | None:
    """What was found about the run in this folder; None where that was not asked for.

    Raises ResultError when the file has changed since, or is about another result.
    """
    path = folder / name
    if not path.is_file():
        return None
    value = read_sealed(path)
    if value.get(_ABOUT) != seal_of(folder / RESULT) or not isinstance(value.get("found"), dict):
        raise ResultError(OTHER, str(path), AGAIN)
    found: dict[str, Any] = value["found"]
    return found


def forget(folder: Path) -> None:
    """Remove what was found about a result that is to be replaced."""
    for name in (VERDICT, ADVICE):
        remove(folder / name)
