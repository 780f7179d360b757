"""Which run of a folder is meant."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from gpusim.base.errors import ResultError, suggest

LEAST = 4  # characters of a key that are more than a number


def key_of(run: str, keys: Sequence[str], folder: Path) -> str:
    """The key of the run of this number, from 1, or whose key begins so.

    keys  of the folder's runs, in the order of its grid
    Raises ResultError where there is none, or more than one.
    """
    found = [key for n, key in enumerate(keys, 1) if str(n) == run or (len(run) >= LEAST and key.startswith(run))]
    if len(found) == 1:
        return found[0]
    which = f"{len(found)} runs have keys that begin with" if found else "there is no run"
    hint = suggest(run, keys) or f"runs are 1 to {len(keys)}, or named by the first characters of their keys"
    raise ResultError(f"{which} '{run}'", str(folder), hint)
