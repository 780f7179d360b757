"""A user's own policies and transforms in an experiment: what each process that carries out its runs must know."""

from __future__ import annotations

import pickle
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpusim.experiment.key import file_hash
from gpusim.policies import registry
from gpusim.policies.entry import Entry
from gpusim.policies.registry import Registry
from gpusim.results import manifest

if TYPE_CHECKING:
    from gpusim.experiment.tasks import Task

USED = "use "  # before the name of a file, among the inputs of a manifest


@dataclass(frozen=True, eq=False)
class Given:
    """Policies and transforms that are Python objects, without a file: equal when they do the same.

    Worker processes get them as bytes; functions that were typed at a prompt, or in a notebook, are within these.
    """

    entries: tuple[Entry, ...] = ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Given) and self._digests == other._digests

    def __hash__(self) -> int:
        return hash(self._digests)

    @property
    def _digests(self) -> tuple[str, ...]:
        return tuple(entry.digest for entry in self.entries)

    def __reduce__(self) -> tuple[Any, ...]:
        if not self.entries:
            return given, ()
        from numba import cloudpickle  # only where there is something to carry

        return _unpacked, (cloudpickle.dumps(self.entries),)


NOTHING = Given()


def _unpacked(content: bytes) -> Given:
    return Given(pickle.loads(content))


def given(*targets: Any) -> Given:
    """These decorated functions and classes, as an experiment carries them."""
    if not targets:
        return NOTHING
    from gpusim.policies.objects import digest

    entries = registry.of(*targets).own.values()
    return Given(tuple(replace(e, digest=digest((e.kind, e.name, dict(e.parameters), e.target))) for e in entries))


def of_task(task: Task) -> Registry:
    """What a run can name besides the built-ins, loaded once in each process."""
    return registry_of(task.use, task.given)


def registry_of(files: tuple[Path, ...], given: Given) -> Registry:
    """The policies and transforms of these files and objects.  PolicyError: a file that is wrong, or two of one name."""
    return _registry(tuple((file, file.stat().st_mtime_ns) for file in files), given)


@lru_cache(maxsize=16)
def _registry(files: tuple[tuple[Path, int], ...], given: Given) -> Registry:
    return registry.of(*(entry for file, stamp in files for entry in _entries(file, stamp)), *given.entries)


@lru_cache(maxsize=64)
def _entries(file: Path, stamp: int) -> list[Entry]:
    return registry.load_user_file(file)


def ready(own: Registry, kind: str, spec: Any) -> Any:
    """The policy that a run names: one of the user's own ready to run; of any other its name, which the engine looks up."""
    return own.get(kind, spec) if (kind, spec.name) in own.own else spec


def of_folder(folder: Path) -> tuple[Path, ...]:
    """Files of policies that the runs of a folder named, with the same content, in the folder above it or the current one."""
    known = (manifest.read(folder) or {}).get("inputs", {})
    found = []
    for name in [name.removeprefix(USED) for name in known if name.startswith(USED)]:
        places = (place / name for place in (folder.resolve().parent, Path.cwd()))
        found += [file for file in places if file.is_file() and file_hash(file) == known[USED + name]][:1]
    return tuple(dict.fromkeys(found))
