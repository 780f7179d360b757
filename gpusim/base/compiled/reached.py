"""What the machine code of a function depends on: the code of all functions that it reaches, and the constants that they read.

Numba inlines what a function calls and takes globals as constants.  So one digest covers the function and, from its own code
on, every function that it names, with the values of the globals, defaults and closures that they read.  What decides nothing
is left out: comments, docstrings, annotations, the names of files and the numbers of lines.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Iterable, Iterator
from enum import EnumMeta
from functools import cache, partial
from importlib.util import find_spec
from opcode import EXTENDED_ARG, opmap
from types import CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np
from numba import types

# Their versions are in the name or the digest of every file, so their functions need not be followed.
OUTSIDE = frozenset({"llvmlite", "numba", "numpy", *sys.stdlib_module_names})
_PLAIN = (bool, bytes, complex, float, int, str, type(None), type(...), range, slice)
_HAS_DOCSTRING = 0x4000000  # of co_flags, since Python 3.13
_LOAD_GLOBAL, _WORD = opmap["LOAD_GLOBAL"], 2  # bytes of an instruction


def digest(function: Callable[..., Any], *, options: Any = None) -> str:
    """sha256 over the code of a function and of all that it reaches, in hexadecimal.

    options: how it is compiled; they count like its code.
    """
    numbers = {_python(function): 0}
    waiting = list(numbers)
    told = hashlib.sha256(_options(options).encode())
    for each in waiting:  # grows
        code, names = _of_function(each)
        for name in names:
            if name not in numbers:
                numbers[name] = len(numbers)
                waiting.append(name)
        told.update(f"{code}\0{[numbers[name] for name in names]}\0".encode())
    return told.hexdigest()


def of_module(name: str) -> str:
    """The code of a module, likewise: for modules that say how others are compiled."""
    loader: Any = find_spec(name).loader  # type: ignore[union-attr]
    return hashlib.sha256(repr(_of_code(loader.get_code(name))).encode()).hexdigest()


def fields(type_: Any) -> str:
    """The names of the fields of named tuples within a type of numba, or within all of a signature: its own text has none."""
    if hasattr(type_, "args") and not isinstance(type_, tuple):
        type_ = type_.args
    inner = type_ if isinstance(type_, tuple) else getattr(type_, "types", ())
    return f"{getattr(type_, 'fields', '')}{[fields(each) for each in inner]}" if inner else ""


@cache
def _of_function(function: FunctionType) -> tuple[str, tuple[FunctionType, ...]]:
    """One function: a text of what it does itself, and the functions that it names, in order."""
    named: list[FunctionType] = []
    code = function.__code__
    cells = function.__closure__ or ()
    values: list[tuple[str, Any]] = [
        ("defaults", function.__defaults__), ("keywords", function.__kwdefaults__),
        *zip(code.co_freevars, (cell.cell_contents for cell in cells), strict=True),
    ]  # fmt: skip
    attributes = frozenset(name for each in _codes(code) for name in each.co_names)
    read = dict.fromkeys(name for each in _codes(code) for name in _globals_read(each))
    values += [(name, function.__globals__[name]) for name in read if name in function.__globals__]
    text = [repr(_of_code(code))]
    text += [f"{name}={_of_value(value, attributes, named)}" for name, value in values]
    return "\0".join(text), tuple(named)


def _of_value(value: Any, attributes: frozenset[str], named: list[FunctionType]) -> str:
    """A text of a constant; functions go to `named`.  attributes: names that are read of modules and classes."""
    if isinstance(value, _PLAIN):
        return repr(value)

    def within(many: Iterable[Any]) -> str:
        return str([_of_value(each, attributes, named) for each in many])

    if isinstance(value, np.ndarray | np.generic):
        return f"{value.dtype!r}{value.shape}{hashlib.sha256(value.tobytes()).hexdigest()}"
    if isinstance(value, np.dtype):
        return f"{value!r}{value.itemsize}"
    if isinstance(value, ModuleType | type):
        name = f"{getattr(value, '__module__', '')}.{value.__name__}"
        if isinstance(value, EnumMeta):
            name += str([(n, m.value) for n, m in vars(value)["_member_map_"].items()])
        return name + str(getattr(value, "_fields", "")) + within(_attributes(value, attributes))
    if isinstance(value, tuple | list | set | frozenset):
        return f"{type(value).__qualname__}{getattr(value, '_fields', '')}{within(_ordered(value))}"
    if isinstance(value, dict):
        return within(value.items())
    if isinstance(value, partial):
        return within((value.func, value.args, value.keywords))
    if isinstance(function := _python(value), FunctionType):
        if _top(function) not in OUTSIDE:
            named.append(function)
            return f"function{_options(getattr(value, 'targetoptions', getattr(value, 'options', None)))}"
        return f"{function.__module__}.{function.__qualname__}"
    if isinstance(value, types.Type) or _top(type(value)) == "numba":  # a type or a signature
        return f"{value}{fields(value)}"
    return f"{type(value).__module__}.{type(value).__qualname__} {getattr(value, '__name__', '')}"


def _attributes(owner: Any, names: frozenset[str]) -> Iterator[Any]:
    """What a module or class of ours has under these names."""
    top = owner.__name__ if isinstance(owner, ModuleType) else owner.__module__
    if top.partition(".")[0] not in OUTSIDE:
        for name in sorted(names & vars(owner).keys()):
            yield name
            yield vars(owner)[name]


def _python(value: Any) -> Any:
    """The Python function of what numba, or this package, made of it."""
    value = getattr(value, "py_func", value)
    while not isinstance(value, FunctionType) and hasattr(value, "__wrapped__"):
        value = value.__wrapped__
    return value


def _top(value: Any) -> str:
    return str(value.__module__ or "").partition(".")[0]


def _options(options: Any) -> str:
    return str(sorted((name, str(value)) for name, value in (options or {}).items()))


def _ordered(values: Any) -> list[Any]:
    return sorted(values, key=repr) if isinstance(values, set | frozenset) else list(values)


def _codes(code: CodeType) -> Iterator[CodeType]:
    """A function's code and that of functions within it."""
    yield code
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield from _codes(each)


def _globals_read(code: CodeType) -> Iterator[str]:
    extended, content = 0, code.co_code
    for at in range(0, len(content), _WORD):
        argument = extended | content[at + 1]
        extended = argument << 8 if content[at] == EXTENDED_ARG else 0
        if content[at] == _LOAD_GLOBAL:
            yield code.co_names[argument >> 1]  # the lowest bit: whether it is called


def _of_code(code: CodeType) -> tuple[Any, ...]:
    """What a code object does, as plain values."""
    constants = list(code.co_consts)
    documented = code.co_flags & _HAS_DOCSTRING or (sys.version_info < (3, 13) and not code.co_name.startswith("<"))
    if documented and constants and isinstance(constants[0], str):
        constants[0] = None
    return (
        code.co_code, code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars, code.co_exceptiontable,
        code.co_argcount, code.co_kwonlyargcount, code.co_posonlyargcount, code.co_flags & 0xFF,
        [_of_code(each) if isinstance(each, CodeType) else _of_constant(each) for each in constants],
    )  # fmt: skip


def _of_constant(value: Any) -> str:
    return repr([repr(each) for each in _ordered(value)]) if isinstance(value, frozenset) else repr(value)
