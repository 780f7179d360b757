"""Which policies there are, and from a name to a policy that the engine can run.

    entries("evict")                 what `gpusim policies` lists; imports no policy
    get("prefetch", "next_k(k=4)")   the policy, compiled (or found in numba's cache)
    of("mine.py").get("evict", "mine")   the same with the policies of a user's own file

A built-in is found by being a file in `policies/<kind>/`, an installed one by the entry-point group `gpusim.policies` (a
module: its policies are those among its names).  A user's own policies are a value, `Registry`: an experiment, or a call of
`simulate`, has one, and two of them do not know of each other.
"""

from __future__ import annotations

import hashlib
import importlib.util
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache, partial
from importlib.machinery import SourceFileLoader
from importlib.metadata import entry_points
from pathlib import Path
from types import CodeType
from typing import Any

from gpusim.base.calls import parse
from gpusim.base.errors import PolicyError, suggest
from gpusim.policies.builtin import aliases, builtin, files
from gpusim.policies.decorators import MARK
from gpusim.policies.entry import KINDS, MOST, Entry, Value, check_range, check_value, vector

APART = {("vllm", "0.9"): "vllm_v0"}
"""(name, version) -> the policy of a version that has a file of its own."""


@dataclass(frozen=True, eq=False)
class Registry:
    """The policies that a run can name: built-in and installed ones, and its own, by (kind, name).

    Transforms of the user's own are among them, as entries of the kind "transform".
    """

    own: Mapping[tuple[str, str], Entry] = field(default_factory=dict)

    def entries(self, kind: str = "") -> list[Entry]:
        """All policies of one kind, or of all kinds: built-ins by name, then installed ones, then its own."""
        kinds = [_kind(kind)] if kind else list(KINDS)
        others = {**_installed(), **self.own}
        return [e for k in kinds for e in [*(builtin(k, n) for n in files(k)), *(o for o in others.values() if o.kind == k)]]

    def find(self, kind: str, name: str) -> Entry:
        """The entry of this name, or former name; PolicyError with a suggestion when there is none."""
        if name in files(_kind(kind)):
            return builtin(kind, name)
        known = {e.name: e for e in self.entries(kind)}
        if name not in known and name in aliases(kind):
            return builtin(kind, aliases(kind)[name])
        if name not in known:
            elsewhere = [k for k in KINDS if k != kind and any(e.name == name for e in self.entries(k))]
            hint = f"'{name}' is a policy of kind {elsewhere[0]}" if elsewhere else suggest(name, known)
            raise PolicyError(f"there is no {kind} policy '{name}'", hint=hint or "known: " + ", ".join(known))
        return known[name]

    def get(self, kind: str, spec: Any) -> Any:
        """The runnable policy (`gpusim.policies.forms`) that `spec` names.

        spec: "name", "name(k=4)", an object with `name` and `params`, a decorated function or class, the same with other
        parameters (`functools.partial(cost, staleness=2)`), or a policy that is ready to run, which stays as it is.
        """
        if isinstance(getattr(spec, "entry", None), Entry):
            return spec
        entry, given = self._named(kind, spec)
        values = bind(entry, given)
        from gpusim.policies.build import build  # numba, which what only lists policies does without

        return build(entry, values)

    def _named(self, kind: str, spec: Any) -> tuple[Entry, Mapping[str, object]]:
        if (entry := entry_of(spec)) is not None:
            if entry.kind != _kind(kind):
                raise PolicyError(f"'{entry.name}' is a policy of kind {entry.kind}, not {kind}", entry.where)
            return entry, spec.keywords if isinstance(spec, partial) else {}
        if isinstance(spec, str):
            name, given = parse(spec)
            name, version = versioned(name)
            return self.find(kind, name), given | ({"version": version} if version else {})
        if isinstance(spec, Mapping):
            return self.find(kind, str(spec["name"])), dict(spec.get("params") or {})
        if not hasattr(spec, "name"):
            said = f"{getattr(spec, '__name__', repr(spec))} is not a policy"
            raise PolicyError(said, hint=f"give a name, or decorate it with @policy.{kind}")
        return self.find(kind, str(spec.name)), dict(spec.params or {})


SHIPPED = Registry()
"""Without policies of a user's own."""
entries, find, get = SHIPPED.entries, SHIPPED.find, SHIPPED.get


def versioned(name: str) -> tuple[str, str]:
    """(policy, version) of "vllm@0.33"; the version is "" where none is named.  PolicyError for an @ without one."""
    name, said, version = name.partition("@")
    if said and not version:
        raise PolicyError(f"'{name}@' names no version", hint=f"write {name}, or {name} with one behind the @")
    return APART.get((name, version), name), version


def of(*sources: Any) -> Registry:
    """A registry with the policies of these files, decorated objects or entries.  PolicyError when two have one name."""
    own: dict[tuple[str, str], Entry] = {}
    files = dict.fromkeys(Path(source).resolve() for source in sources if isinstance(source, str | Path))
    objects = [source for source in sources if not isinstance(source, str | Path)]
    for entry in (e for source in (*files, *objects) for e in _entries_of(source)):
        other = own.setdefault((entry.kind, entry.name), entry)
        if other.target is not entry.target:
            raise PolicyError(
                f"{entry.kind} policy '{entry.name}' is registered twice, first at {other.where}", entry.where,
                "give one of them another name",
            )  # fmt: skip
    return Registry(own) if own else SHIPPED


def entry_of(target: Any) -> Entry | None:
    """The entry that a decorated object carries, with parameters or without; None of any other object."""
    found = getattr(target.func if isinstance(target, partial) else target, "__dict__", {}).get(MARK)
    return found if isinstance(found, Entry) else None


def _entries_of(source: Any) -> Iterable[Entry]:
    if isinstance(source, Entry):
        return [source]
    if isinstance(source, Path):
        return load_user_file(source)
    if (entry := entry_of(source)) is None:
        raise PolicyError(f"{source!r} is neither a file nor a decorated policy", hint="decorate it, as with @policy.evict")
    return [entry]


@cache
def _installed() -> Mapping[tuple[str, str], Entry]:
    """What other packages offer."""
    found: dict[tuple[str, str], Entry] = {}
    for point in entry_points(group="gpusim.policies"):
        try:
            offered = point.load()
        except Exception as error:
            message = f"the installed policies '{point.name}' ({point.value}) cannot be loaded: {error}"
            raise PolicyError(message) from error
        found |= {(e.kind, e.name): e for e in _users_of([offered, *vars(offered).values()])}
    return found


def _users_of(values: Iterable[Any]) -> list[Entry]:
    """The entries that these objects carry, without those of built-ins."""
    return [entry for value in values if (entry := entry_of(value)) is not None and not entry.builtin]


class _FromSource(SourceFileLoader):
    """Loads what the file says now; Python would take bytecode for it that it kept in the same second at the same size."""

    def get_code(self, fullname: str) -> CodeType:
        code: CodeType = self.source_to_code(self.get_data(self.path), self.path)
        return code


def load_user_file(path: str | Path) -> list[Entry]:
    """Run a user's Python file and answer the policies and transforms among its names, in the file's order."""
    file = Path(path).resolve()
    if not file.is_file():
        raise PolicyError(f"there is no policy file '{path}'")
    name = f"gpusim_user_{file.stem}_{hashlib.sha256(str(file).encode()).hexdigest()[:8]}"
    if file.suffix != ".py":
        raise PolicyError(f"'{path}' is not a Python file", hint="a policy file ends in .py")
    spec = importlib.util.spec_from_file_location(name, file, loader=(loader := _FromSource(name, str(file))))
    assert spec is not None  # a loader was given
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # where pickle, inspect and numba look for what the file defines
    try:
        loader.exec_module(module)
    except PolicyError:
        raise
    except (Exception, SystemExit) as error:
        line = next((f.lineno for f in reversed(_frames(error)) if f.filename == str(file)), 1)
        if isinstance(error, SyntaxError) and error.filename == str(file):
            line = error.lineno or 1
        raise PolicyError(f"{type(error).__name__}: {error}", f"{path}:{line}") from error
    found = _users_of(vars(module).values())
    if not found:
        raise PolicyError("the file registers no policy", str(path), "decorate a function with @policy.evict")
    return found


def _frames(error: BaseException) -> list[Any]:
    import traceback

    return list(traceback.extract_tb(error.__traceback__))


def bind(entry: Entry, given: Mapping[str, object]) -> dict[str, Value]:
    """All parameters in order: given values, defaults for the rest; PolicyError for one the policy does not have."""
    known = dict(entry.parameters)
    if entry.kind == "evict" and "now" in entry.facts:
        known.setdefault("sample", 0)
    values: dict[str, Value] = dict(known)
    for name, value in given.items():
        if name in entry.unmodelled:
            raise PolicyError(f"policy '{entry.name}' does not model {entry.unmodelled[name]}", hint=f"leave out {name}")
        if name not in known:
            near = suggest(name, known) or f"`gpusim policies {entry.name}` lists them"
            hint = near if known else f"'{entry.name}' has no parameters"
            raise PolicyError(f"policy '{entry.name}' has no parameter '{name}'", hint=hint)
        values[name] = check_value(value, name, entry.name, known[name])
        if entry.builtin:
            check_range(values[name], name, entry.name, known[name], entry.limits.get(name, MOST))
    if entry.numbers:
        vector(entry, values)
    return values


def _kind(kind: str) -> str:
    if kind not in KINDS:
        raise PolicyError(f"there is no policy kind '{kind}'", hint=suggest(kind, KINDS))
    return kind
