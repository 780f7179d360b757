"""Functions that are found by being a file in a folder, and called as "name(parameter=value, ...)".

Their files are read, not imported, until one is called.  The docstring is the help; arguments that have a default are the
parameters, and a value is read as its default's type.
"""

from __future__ import annotations

import ast
import inspect
import math
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any

from gpusim.base.calls import split
from gpusim.base.errors import GpusimError, suggest

Value = int | float | str
MOST, MOST_SEED = 10**8, 2**63 - 1  # of any number: products of them fit 64 bits, or do not fit the machine
_YES, _NO = ("1", "yes", "true"), ("0", "no", "false")


@dataclass(frozen=True)
class Function:
    """name, help; the parameters and their defaults in order; file:line of one that is not built in."""

    name: str
    help: str
    parameters: Mapping[str, Value]
    where: str = ""
    target: Callable[..., Any] | None = None  # None: in a file that is still to be imported

    @property
    def summary(self) -> str:
        """The first paragraph of the help, on one line."""
        return " ".join(self.help.split("\n\n")[0].split())


def described(target: Callable[..., Any], where: str) -> Function:
    """The entry of a function that has been imported."""
    arguments = inspect.signature(target).parameters.values()
    parameters = {a.name: a.default for a in arguments if a.default is not a.empty}
    return Function(target.__name__, inspect.getdoc(target) or "", parameters, where, target)


@dataclass(frozen=True)
class Functions:
    """Those of one kind ("generator"), one in each file of `package` that has a function of the file's name; `returns` is the
    annotation of what they answer, which sets them apart from what helps them."""

    package: str
    kind: str
    returns: str

    @cached_property
    def builtin(self) -> Mapping[str, Function]:
        """Those of the package, by name."""
        folder = Path(__file__).parents[1].joinpath(*self.package.split(".")[1:])
        found = (_read(file, self.returns) for file in sorted(folder.glob("[!_]*.py")))
        return {f.name: f for f in found if f is not None}

    def entries(self, own: Iterable[Function] = ()) -> list[Function]:
        """All of them: built-ins by name, then a user's own."""
        return [*self.builtin.values(), *own]

    def bind(self, spec: str, own: Iterable[Function] = ()) -> tuple[Function, dict[str, Value]]:
        """The function that "name(parameter=value)" means and the values it gives; GpusimError for what does not exist."""
        name, texts = split(spec, f"a {self.kind}")
        known = {f.name: f for f in self.entries(own)}
        if name not in known:
            raise GpusimError(f"there is no {self.kind} '{name}'", hint=suggest(name, known))
        return known[name], {key: self._value(known[name], key, text) for key, text in texts.items()}

    def load(self, function: Function) -> Callable[..., Any]:
        """The function itself, imported now if it has not been."""
        made: Callable[..., Any] = function.target or getattr(import_module(f"{self.package}.{function.name}"), function.name)
        return made

    def _value(self, entry: Function, key: str, text: str) -> Value:
        """The parameter as its default's type; 0 only where that is the default."""
        if key not in entry.parameters:
            hint = suggest(key, entry.parameters) or "known: " + ", ".join(entry.parameters)
            raise GpusimError(f"{self.kind} '{entry.name}' has no parameter '{key}'", hint=hint)
        default = entry.parameters[key]
        if isinstance(default, str):
            return text
        if isinstance(default, bool):
            wanted = "yes or no"
            if text.lower() in _YES + _NO:
                return text.lower() in _YES
        else:
            wanted = ("a whole number" if isinstance(default, int) else "a number") + (" above 0" if default else "")
            with suppress(ValueError):
                value = type(default)(text)
                if math.isfinite(value) and value >= 0 and (value or not default):
                    if value > (most := MOST_SEED if key == "seed" else MOST):
                        raise GpusimError(f"parameter '{key}' of {self.kind} '{entry.name}' is {text}, above {most:,}")
                    return value
        raise GpusimError(f"parameter '{key}' of {self.kind} '{entry.name}' is '{text}', not {wanted}")


def _read(file: Path, returns: str) -> Function | None:
    functions = (n for n in ast.parse(file.read_text("utf-8")).body if isinstance(n, ast.FunctionDef))
    node = next((n for n in functions if n.name == file.stem), None)
    if node is None or not isinstance(node.returns, ast.Name) or node.returns.id != returns:
        return None
    defaults = [ast.literal_eval(d) for d in node.args.defaults]
    names = [a.arg for a in node.args.args][len(node.args.args) - len(defaults) :]
    return Function(file.stem, ast.get_docstring(node) or "", dict(zip(names, defaults, strict=True)))
