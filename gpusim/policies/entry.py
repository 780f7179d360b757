"""One line of `gpusim policies`: what there is to say about a policy before it is compiled.

A built-in is one file `policies/<kind>/<name>.py`, found by being there; former names are in `gpusim.results.renamed`.  It is
read, not imported, until a run names it.
The file is either

* a function of facts, decorated as a user would (see `gpusim.policies.decorators`), or
* a module with the verbs of the contract and a function `state`, in which

      docstring           the help; a line "Source: ..." names the paper
      PARAMS = {"k": 4}   the parameters and their defaults, in the order of the `params` vector (may be missing)
      LIMITS = {"k": 8}   the largest value of parameters that have one (may be missing)
      NUMBERS = "a.b"     where text is among the defaults: the module, without numba, whose function `numbers(values)` makes
                          the `params` vector of them and raises PolicyError for text that it cannot read
      TRAINED = ("a",)    the programs that it was trained on, of a learned policy (may be missing)
      KNOWS = "past"      or "window" (what is already issued) or "future" (an oracle); may be missing, then "past"
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import Any

from gpusim.base.errors import PolicyError, UnitError
from gpusim.base.units import parse_bytes
from gpusim.policies import facts
from gpusim.results.renamed import POLICIES

MOST = 2.0**62  # of any parameter
KINDS = ("place", "evict", "prefetch", "defrag", "release", "pool", "plan", "placement", "schedule", "checkpoint", "jobs",
         "tenants", "migrate")  # fmt: skip
VIEWED = ("placement", "checkpoint", "jobs", "tenants")
"""Kinds whose policies are functions of a view, in plain Python."""
Number = int | float
Value = Number | str
LOADS = ("gpusim.policies",)  # packages whose modules are imported by name


@dataclass(frozen=True)
class Entry:
    """name, kind, help; the parameters and their defaults; what the policy knows; where it comes from."""

    name: str
    kind: str
    help: str
    parameters: Mapping[str, Value] = field(default_factory=dict)
    knows: str = "past"  # "past" | "window" | "future"
    source: str = ""     # paper
    facts: tuple[str, ...] = ()  # what a score reads, empty for other forms
    where: str = ""      # file:line
    builtin: bool = True
    target: Any = None   # the user's function or class; None: a module that is still to be imported
    numbers: str = ""    # the module that reads parameters which are text
    limits: Mapping[str, Number] = field(default_factory=dict)  # the largest value of a parameter that has one
    aliases: tuple[str, ...] = ()  # former names: accepted wherever its name is, and never listed
    trained: tuple[str, ...] = ()  # the programs that a learned policy was trained on
    digest: str = ""     # of the target, where it has no file of its own that a run key could name

    @property
    def module(self) -> str:
        """Where a built-in is defined."""
        return f"gpusim.policies.{self.kind}.{self.name}"

    @property
    def oracle(self) -> bool:
        return self.knows == "future"

    @property
    def summary(self) -> str:
        """The first sentence of the help, on one line."""
        first = " ".join(self.help.strip().split("\n\n")[0].split())
        return re.split(r"(?<=[.!?])\s", first, maxsplit=1)[0]


def read(path: Path, kind: str) -> Entry:
    """The entry of the built-in in `path`, without importing it."""
    tree = ast.parse(path.read_text("utf-8"), str(path))
    name = path.stem
    values: dict[str, Any] = {"PARAMS": {}, "KNOWS": "past", "NUMBERS": "", "LIMITS": {}, "TRAINED": ()}
    for node in tree.body:
        target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
        if isinstance(target, ast.Name) and target.id in values and isinstance(node, ast.Assign | ast.AnnAssign):
            values[target.id] = ast.literal_eval(node.value)  # type: ignore[arg-type]
    aliases = tuple(before for (of, before), now in POLICIES.items() if (of, now) == (kind, name))
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name == name:
            found = _from_function(node, path, kind)
            return replace(found, aliases=aliases, limits=values["LIMITS"], trained=values["TRAINED"])
    text, source = split_help(ast.get_docstring(tree) or "")
    return Entry(
        name, kind, text, values["PARAMS"], values["KNOWS"], source, where=str(path), numbers=values["NUMBERS"],
        limits=values["LIMITS"], aliases=aliases, trained=values["TRAINED"],
    )  # fmt: skip


def _from_function(node: ast.FunctionDef, path: Path, kind: str) -> Entry:
    arguments, defaults = node.args.args, node.args.defaults
    split = len(arguments) - len(defaults)
    names = tuple(a.arg for a in arguments[:split])
    where = f"{path}:{node.lineno}"
    parameters = {a.arg: ast.literal_eval(d) for a, d in zip(arguments[split:], defaults, strict=True)}
    text, source = split_help(ast.get_docstring(node) or "")
    if kind in VIEWED:  # it reads a view, and no facts
        return Entry(node.name, kind, text, parameters, source=source, where=where)
    facts.check(names, node.name, where, kind)
    return Entry(node.name, kind, text, parameters, facts.knows(names, kind), source, names, where)


def split_help(docstring: str) -> tuple[str, str]:
    """(help, source): the paragraph that begins with "Source:" is taken out."""
    paragraphs = docstring.strip().split("\n\n")
    source = [p for p in paragraphs if p.startswith("Source:")]
    text = "\n\n".join(p for p in paragraphs if not p.startswith("Source:"))
    return text, " ".join(source[0].removeprefix("Source:").split()) if source else ""


def check_number(value: object, name: str, policy: str, default: Number, where: str = "") -> Number:
    """The value of a parameter as its default's type; PolicyError when it is no such number."""
    whole = isinstance(default, int)
    number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if not number or (whole and value % 1):  # type: ignore[operator]
        wanted = "a whole number" if whole else "a number"
        raise PolicyError(f"parameter '{name}' of policy '{policy}' is {value!r}, not {wanted}", where, _in_bytes(value))
    return type(default)(value)  # type: ignore[arg-type,call-overload]


def _in_bytes(value: object) -> str:
    """What to write instead of "2 GiB", "" for anything else."""
    try:
        return f"in bytes: {parse_bytes(value)}" if isinstance(value, str) else ""
    except UnitError:
        return ""


def check_range(value: Value, name: str, policy: str, default: Value, limit: Number = MOST) -> None:
    """What holds for every built-in: a number fits 64 bits or its own limit, and is negative only where the default is."""
    if isinstance(value, str) or isinstance(default, str):
        return
    if value > limit != MOST:
        said = f"parameter '{name}' of policy '{policy}' is above {limit:g} ({value:.6g})"
        raise PolicyError(said, hint=f"default: {default:g}")
    if abs(value) > MOST:
        raise PolicyError(f"parameter '{name}' of policy '{policy}' is {value:.6g}, above 2^62")
    if value < 0 <= default:
        raise PolicyError(f"parameter '{name}' of policy '{policy}' is negative ({value:g})", hint=f"default: {default:g}")


def check_value(value: object, name: str, policy: str, default: Value) -> Value:
    """The same of a parameter that may be text; a number stands for its digits, where these are not lost."""
    if not isinstance(default, str):
        return check_number(value, name, policy, default)
    if isinstance(value, float) and len(str(value).partition(".")[2]) == 1:
        raise PolicyError(
            f"parameter '{name}' of policy '{policy}' is the number {value}, which may have been written {value}0",
            hint=f'put it into quotes: "{value}" or "{value}0"',
        )
    if isinstance(value, str | int | float) and not isinstance(value, bool):
        return str(value)
    raise PolicyError(f"parameter '{name}' of policy '{policy}' is {value!r}, not text")


def vector(entry: Entry, values: Mapping[str, Value]) -> list[float]:
    """What `state` gets as params; PolicyError for text that the policy cannot read."""
    if entry.numbers:
        return list(import_module(entry.numbers).numbers(values))
    return [float(values[name]) for name in entry.parameters]
