"""Which policies there are, and from a name to a policy that the engine can run.

    entries("evict")                 what `gpusim policies` lists; imports no policy
    get("prefetch", "next_k(k=4)")   the policy, compiled (or found in numba's cache)
    load_user_file("mine.py")        adds the policies decorated in the file, answers their entries

A built-in is found by being a file in `policies/<kind>/`.  A user's policy comes from a file (`use:` of an experiment),
from an installed package (entry-point group `gpusim.policies`: a module to import), or from the running program (a
decorator).
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Mapping
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from gpusim.base.calls import parse
from gpusim.base.errors import PolicyError, suggest
from gpusim.policies import entry as entry_file
from gpusim.policies.decorators import MARK
from gpusim.policies.entry import KINDS, MOST, Entry, Value, check_range, check_value, vector

_users: dict[tuple[str, str], Entry] = {}


@cache
def _files(kind: str) -> Mapping[str, Path]:
    """The files of the built-ins, by name."""
    return {f.stem: f for f in sorted((Path(__file__).parent / kind).glob("*.py")) if not f.name.startswith("_")}


@cache
def _builtin(kind: str, name: str) -> Entry:
    return entry_file.read(_files(kind)[name], kind)


@cache
def _aliases(kind: str) -> Mapping[str, str]:
    """Former name of a built-in -> its name; read only where a name is none of today's."""
    return {alias: name for name in _files(kind) for alias in _builtin(kind, name).aliases}


@cache
def _installed() -> None:
    """Import what other packages offer; their decorators register."""
    for point in entry_points(group="gpusim.policies"):
        try:
            point.load()
        except Exception as error:
            message = f"the installed policies '{point.name}' ({point.value}) cannot be loaded: {error}"
            raise PolicyError(message) from error


def entries(kind: str = "") -> list[Entry]:
    """All policies of one kind, or of all kinds: built-ins by name, then users'."""
    kinds = [_kind(kind)] if kind else list(KINDS)
    _installed()
    return [e for k in kinds for e in [*(_builtin(k, n) for n in _files(k)), *(u for u in _users.values() if u.kind == k)]]


def find(kind: str, name: str) -> Entry:
    """The entry of this name, or of the policy that was called so before; PolicyError with a suggestion when there is none."""
    _installed()
    if name in _files(_kind(kind)):
        return _builtin(kind, name)
    known = {e.name: e for e in entries(kind)}
    if name not in known and name in _aliases(kind):
        return _builtin(kind, _aliases(kind)[name])
    if name not in known:
        elsewhere = [k for k in KINDS if k != kind and any(e.name == name for e in entries(k))]
        hint = f"'{name}' is a policy of kind {elsewhere[0]}" if elsewhere else suggest(name, known)
        raise PolicyError(f"there is no {kind} policy '{name}'", hint=hint or "known: " + ", ".join(known))
    return known[name]


def renamed(kind: str, text: str) -> str:
    """A policy as results name it, "recall(ahead=8)", under the name that it has now."""
    name, bracket, rest = text.partition("(")
    return _aliases(_kind(kind)).get(name, name) + bracket + rest


def register(entry: Entry) -> None:
    """Add a user's policy; the same file may register a name again, another may not."""
    if entry.name in _files(entry.kind):
        raise PolicyError(f"{entry.kind} policy '{entry.name}' is built in", entry.where, "give yours another name")
    if entry.name in _aliases(entry.kind):
        now = _aliases(entry.kind)[entry.name]
        said = f"'{entry.name}' is a former name of {entry.kind} policy '{now}'"
        raise PolicyError(said, entry.where, "give yours another name")
    other = _users.get((entry.kind, entry.name))
    if other is not None and other.where.rpartition(":")[0] != entry.where.rpartition(":")[0]:
        raise PolicyError(
            f"{entry.kind} policy '{entry.name}' is registered twice, first at {other.where}", entry.where,
            "give one of them another name",
        )  # fmt: skip
    _users[entry.kind, entry.name] = entry


def load_user_file(path: str | Path) -> list[Entry]:
    """Run a user's Python file and answer the policies it registered, in the file's order."""
    file = Path(path).resolve()
    if not file.is_file():
        raise PolicyError(f"there is no policy file '{path}'")
    name = f"gpusim_user_{file.stem}"
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise PolicyError(f"'{path}' is not a Python file", hint="a policy file ends in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # where pickle, inspect and numba look for what the file defines
    try:
        spec.loader.exec_module(module)
    except PolicyError:
        raise
    except (Exception, SystemExit) as error:
        line = next((f.lineno for f in reversed(_frames(error)) if f.filename == str(file)), 1)
        if isinstance(error, SyntaxError) and error.filename == str(file):
            line = error.lineno or 1
        raise PolicyError(f"{type(error).__name__}: {error}", f"{path}:{line}") from error
    found = [value.__dict__[MARK] for value in vars(module).values() if MARK in getattr(value, "__dict__", {})]
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
        if name not in known:
            hint = suggest(name, known) if known else f"'{entry.name}' has no parameters"
            raise PolicyError(f"policy '{entry.name}' has no parameter '{name}'", hint=hint)
        values[name] = check_value(value, name, entry.name, known[name])
        if entry.builtin:
            check_range(values[name], name, entry.name, known[name], entry.limits.get(name, MOST))
    if entry.numbers:
        vector(entry, values)
    return values


def get(kind: str, spec: Any) -> Any:
    """The runnable policy (`gpusim.policies.forms`) that `spec` names.

    spec: "name", "name(k=4)", an object with `name` and `params`, or a decorated function or class.
    """
    if isinstance(spec, str):
        name, given = parse(spec)
    elif isinstance(spec, Mapping):
        name, given = str(spec["name"]), dict(spec.get("params") or {})
    elif MARK in getattr(spec, "__dict__", {}):
        name, given = spec.__dict__[MARK].name, {}
    else:
        name, given = str(spec.name), dict(spec.params or {})
    entry = find(kind, name)
    values = bind(entry, given)
    from gpusim.policies import forms

    return forms.build(entry, values)


def _kind(kind: str) -> str:
    if kind not in KINDS:
        raise PolicyError(f"there is no policy kind '{kind}'", hint=suggest(kind, KINDS))
    return kind
