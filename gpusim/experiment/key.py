"""The name of a run: a hash of everything that its result depends on, and of nothing else."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

# What a result depends on; drawing, printing and reading files do not change it.
_PARTS = ("config", "core", "engine", "experiment", "hardware", "policies", "results", "trace")


def run_key(inputs: Mapping[str, Any]) -> str:
    """16 hex digits for the inputs of a run: plain values (JSON), with content hashes in place of files."""
    text = json.dumps(inputs, sort_keys=True, allow_nan=False, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def file_hash(path: str | Path) -> str:
    """sha256 of a file's content."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@cache
def code_hash() -> str:
    """sha256 over the simulator's own source: a result of other code is never taken for a result of this one."""
    return _hash(_PARTS)


@cache
def _hash(parts: tuple[str, ...]) -> str:
    root = Path(__file__).parents[1]
    digest = hashlib.sha256()
    for path in sorted(p for part in parts for p in (root / part).rglob("*.py")):
        digest.update(str(path.relative_to(root)).encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def unified_hash() -> list[str]:
    """Of the driver's model, of what asks allocators alone, and of the machines that others' costs follow from."""
    from gpusim.uvm.platforms import origins

    return [_hash(("uvm", "fragment")), *(file_hash(path) for path in origins())]


def transform_hash(files: Sequence[str]) -> list[str]:
    """Of the transforms' own source, and of these files of a user's: of runs that go through one."""
    return [_hash(("transforms",)), *(file_hash(file) for file in files)]
