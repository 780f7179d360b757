"""A digest of a Python object: what it does follows from it, wherever and under whatever name it was typed."""

from __future__ import annotations

import hashlib
import inspect
import uuid
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np

_PLAIN = (int, float, complex, str, bytes, type(None), type(Ellipsis))


def digest(target: Any) -> str:
    """sha256 over the code of a function or class, and all values that it refers to: defaults, closures, globals.

    Of a module that it uses only the file itself counts.  What is of no known kind may have changed: its digest is
    new each time.
    """
    told = hashlib.sha256()
    for part in _parts(target, {}):
        told.update(part.encode("utf-8", "surrogatepass") + b"\0")
    return told.hexdigest()


def _parts(value: Any, seen: dict[int, Any]) -> Iterator[str]:
    if isinstance(value, _PLAIN):
        yield f"{type(value).__name__} {value!r}"
        return
    if id(value) in seen:
        yield "again"
        return
    seen[id(value)] = value  # alive, so that no other object gets its id
    if isinstance(value, FunctionType):
        yield from _code(value.__code__)
        yield from _parts([value.__defaults__, value.__kwdefaults__], seen)
        found = inspect.getclosurevars(value)
        yield from _parts([found.nonlocals, found.globals], seen)
    elif isinstance(value, staticmethod | classmethod):
        yield from _parts(value.__func__, seen)
    elif isinstance(value, partial):
        yield from _parts([value.func, value.args, value.keywords], seen)
    elif isinstance(value, ModuleType):
        file = Path(getattr(value, "__file__", None) or "")
        yield f"module {value.__name__} {hashlib.sha256(file.read_bytes()).hexdigest() if file.is_file() else ''}"
    elif isinstance(value, type):
        yield f"class {value.__name__}"
        if value.__module__ != "builtins":
            yield from _parts({k: v for k, v in vars(value).items() if not _is_bookkeeping(k)}, seen)
            yield from _parts(value.__bases__, seen)
    elif isinstance(value, Mapping):
        yield f"mapping {len(value)}"
        for key in sorted(value, key=repr):
            yield from _parts(key, seen)
            yield from _parts(value[key], seen)
    elif isinstance(value, list | tuple | set | frozenset):
        yield f"{type(value).__name__} {len(value)}"
        for each in sorted(value, key=repr) if isinstance(value, set | frozenset) else value:
            yield from _parts(each, seen)
    elif isinstance(value, np.ndarray | np.generic) and value.dtype != object:
        yield f"array {value.dtype.str} {value.shape} {hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()}"
    elif inspect.isbuiltin(value) or isinstance(value, np.ufunc):
        yield f"builtin {getattr(value, '__module__', '')}.{value.__name__}"
    else:
        yield uuid.uuid4().hex


def _is_bookkeeping(name: str) -> bool:
    """Attributes of a class that say nothing of what it does."""
    return name in ("__dict__", "__weakref__", "__module__", "__doc__", "__firstlineno__", "__static_attributes__") or (
        name.startswith("__gpusim_")
    )


def _code(code: CodeType) -> Iterator[str]:
    yield f"{code.co_code.hex()} {code.co_names} {code.co_varnames} {code.co_freevars}"
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _code(constant)
        else:
            yield repr(sorted(constant, key=repr)) if isinstance(constant, frozenset) else repr(constant)
