"""The name of a run: a hash of everything that its result depends on, and of nothing else."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpusim.base.yaml.values import NONE
from gpusim.experiment.closure import PACKAGE, Closure
from gpusim.experiment.spec import KINDS
from gpusim.policies import registry
from gpusim.programs import transforms

if TYPE_CHECKING:
    from gpusim.experiment.spec import RunSpec

RUN = "gpusim.experiment.execute"  # where every run begins


def run_key(inputs: Mapping[str, Any]) -> str:
    """16 hex digits for the inputs of a run: plain values (JSON), with content hashes in place of files."""
    text = json.dumps(inputs, sort_keys=True, allow_nan=False, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def file_hash(path: str | Path) -> str:
    """sha256 of a file's content."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class Code:
    """What decides runs besides their inputs: the simulator's own source, policies and transforms, and the compiler."""

    def __init__(self, package: Path = PACKAGE) -> None:
        self._closure = _own() if package == PACKAGE else Closure(package)
        self._known: dict[tuple[str, ...], str] = {}
        self._versions = [f"{name} {version(name)}" for name in ("numba", "numpy")]

    def of(self, spec: RunSpec) -> str:
        """A hash of the code that this run depends on."""
        names = (spec.transform, *(getattr(spec, kind).name for kind in KINDS))
        if names not in self._known:
            self._known[names] = self.of_all(*_loaded_by(spec))
        return self._known[names]

    def of_all(self, *loaded: str | Path) -> str:
        """The same of runs that load these modules of the package and files of a user's, or none."""
        text = "\n".join([self._closure.digest([RUN, *loaded]), *self._versions])
        return hashlib.sha256(text.encode()).hexdigest()


@cache
def _own() -> Closure:
    return Closure()


def _loaded_by(spec: RunSpec) -> list[str | Path]:
    """What a run loads because its experiment names it."""
    found = transforms.sources(spec.transform)
    for kind in KINDS:
        entry = registry.find(kind, getattr(spec, kind).name)
        if entry.builtin:
            found += [entry.module, *([entry.numbers] if entry.numbers else [])]
        else:
            found.append(Path(entry.where.rpartition(":")[0]))
    return found


def origins(spec: RunSpec) -> list[str]:
    """Hashes of the machines that others' costs of unified memory follow from, of runs that have it."""
    if spec.unified == NONE:
        return []
    from gpusim.machine import platforms

    return [file_hash(path) for path in platforms.origins()]
