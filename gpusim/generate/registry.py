"""Which generators there are, and from "name(parameter=value)" to the requests it makes.

Their files are read, not imported, until one is asked for.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from gpusim.errors import GpusimError, suggest
from gpusim.policies.registry import split

if TYPE_CHECKING:
    from gpusim.fragment.requests import Requests
    from gpusim.generate.schedule import Schedule

Value = int | float | str
MOST, MOST_SEED = 10**8, 2**63 - 1  # of any number: products of them fit 64 bits, or do not fit the machine


@dataclass(frozen=True)
class Generator:
    """name, help; the parameters and their defaults in order."""

    name: str
    help: str
    parameters: Mapping[str, Value]

    @property
    def summary(self) -> str:
        """The first paragraph of the help, on one line."""
        return " ".join(self.help.split("\n\n")[0].split())


@cache
def _known() -> Mapping[str, Generator]:
    files = sorted((Path(__file__).parent / "programs").glob("[!_]*.py"))
    return {f.stem: _read(f) for f in files}


def _read(file: Path) -> Generator:
    functions = (n for n in ast.parse(file.read_text("utf-8")).body if isinstance(n, ast.FunctionDef))
    node = next(n for n in functions if n.name == file.stem)
    names = (a.arg for a in node.args.args)
    defaults = (ast.literal_eval(d) for d in node.args.defaults)
    return Generator(file.stem, ast.get_docstring(node) or "", dict(zip(names, defaults, strict=True)))


def entries() -> list[Generator]:
    """All generators by name."""
    return list(_known().values())


def schedule(spec: str) -> Schedule:
    """The schedule behind `get`, for a generator that mixes others."""
    name, texts = split(spec, "a generator")
    if name not in _known():
        raise GpusimError(f"there is no generator '{name}'", hint=suggest(name, _known()))
    entry = _known()[name]
    values = {key: _value(entry, key, text) for key, text in texts.items()}
    made: Schedule = getattr(import_module(f"gpusim.generate.programs.{name}"), name)(**values)
    return made


def get(spec: str) -> Requests:
    """The requests of "name" or "name(parameter=value, ...)"."""
    return replace(schedule(spec).requests(), name=spec)


def _value(entry: Generator, key: str, text: str) -> Value:
    """The parameter as its default's type; 0 only where that is the default."""
    if key not in entry.parameters:
        raise GpusimError(f"generator '{entry.name}' has no parameter '{key}'", hint=suggest(key, entry.parameters))
    default = entry.parameters[key]
    if isinstance(default, str):
        return text
    if isinstance(default, bool):
        wanted = "0 or 1"
        if text in ("0", "1"):
            return text == "1"
    else:
        wanted = ("a whole number" if isinstance(default, int) else "a number") + (" above 0" if default else "")
        with suppress(ValueError):
            value = type(default)(text)
            if math.isfinite(value) and value >= 0 and (value or not default):
                if value > (most := MOST_SEED if key == "seed" else MOST):
                    raise GpusimError(f"parameter '{key}' of generator '{entry.name}' is {text}, above {most:,}")
                return value
    raise GpusimError(f"parameter '{key}' of generator '{entry.name}' is '{text}', not {wanted}")
