"""The name of a run: a hash of everything that its result depends on, and of nothing else."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpusim.base.calls import parse
from gpusim.base.defaults import LATER
from gpusim.base.yaml.values import NONE, PolicySpec
from gpusim.experiment.closure import PACKAGE, Closure
from gpusim.experiment.spec import KINDS
from gpusim.policies.entry import Entry
from gpusim.policies.registry import SHIPPED, Registry
from gpusim.policies.units import UNIFIED
from gpusim.programs import transforms
from gpusim.programs.ranks import placement

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

    def __init__(self, package: Path = PACKAGE, own: Registry = SHIPPED) -> None:
        self._own = own
        self._closure = _own() if package == PACKAGE else Closure(package)
        self._known: dict[tuple[str, ...], str] = {}
        self._versions = [f"{name} {version(name)}" for name in ("numba", "numpy")]

    def of(self, spec: RunSpec) -> str:
        """A hash of the code that this run depends on."""
        names = (spec.transform, spec.placement, *(getattr(spec, kind).name for kind in KINDS))
        if names not in self._known:
            self._known[names] = self.of_all(*_loaded_by(spec, self._own))
        return self._known[names]

    def of_all(self, *loaded: str | Entry) -> str:
        """The same of runs that load these modules of the package and policies of a user's, or none."""
        objects = [each.digest for each in loaded if isinstance(each, Entry) and each.digest]
        roots = [_root(each) for each in loaded if isinstance(each, str) or not each.digest]
        text = "\n".join([self._closure.digest([RUN, *roots]), *self._versions, *objects])
        return hashlib.sha256(text.encode()).hexdigest()


@cache
def _own() -> Closure:
    return Closure()


def _root(loaded: str | Entry) -> str | Path:
    """The module of a built-in, the file of a user's policy."""
    return loaded if isinstance(loaded, str) else Path(loaded.where.rpartition(":")[0])


def _loaded_by(spec: RunSpec, own: Registry = SHIPPED) -> list[str | Entry]:
    """What a run loads because its experiment names it."""
    found = transforms.sources(spec.transform, own)
    if spec.parallel != LATER["parallel"]:
        found += placement.sources(spec.placement, own)
    chosen = [(kind, getattr(spec, kind).name) for kind in KINDS]
    if spec.unified != NONE:
        chosen += of_pages(spec.unified, own)
    for kind, name in chosen:
        entry = own.find(kind, name)
        if entry.builtin:
            found += [entry.module, *([entry.numbers] if entry.numbers else [])]
        else:
            found.append(entry)
    return found


def of_pages(unified: PolicySpec, own: Registry) -> list[tuple[str, str]]:
    """The policies, by kind and name, that unified memory has beside the driver's own."""
    named = [(kind, parse(str(text))[0]) for kind, text in unified.params if kind in UNIFIED]
    return [(kind, name) for kind, name in named if any(entry.name == name for entry in own.entries(kind))]


def origins(spec: RunSpec, file: Path) -> list[str]:
    """Hashes of other machines that count: those that others' costs of unified memory follow from, of runs that have it; the
    GPUs of a machine of several, of runs on that in `file`."""
    from gpusim.experiment.machine_of import whole

    several = spec.parallel != LATER["parallel"] or (spec.unified != NONE and whole(file, spec.profile) is not None)
    found = []
    if several:
        from gpusim.experiment.layouts import contents

        found = contents(file, spec.profile)
    if spec.unified == NONE or spec.parallel != LATER["parallel"]:
        return found
    from gpusim.machine import platforms

    return found + [file_hash(path) for path in platforms.origins()]
