"""The state of a run as it is at some moment, to which the run can return.

    kept = Kept(run)
    run.advance()
    kept.restore()      the run stands where it was

Compiled code knows arrays by their addresses, so arrays and objects keep their places and get their contents back.
"""

from __future__ import annotations

import random
from collections import deque
from functools import cache
from types import BuiltinFunctionType, CellType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

from gpusim.base.errors import GpusimError

_FIXED = (str, bytes, int, float, complex, bool, type(None), type, BuiltinFunctionType, ModuleType, range, slice)
_FOREIGN = ("numba", "llvmlite", "weakref", "_weakref", "_ctypes", "ctypes", "logging")


class Kept:
    """All that can be reached from these objects: arrays, lists, dicts, sets, random generators, attributes, closures.

    Raises GpusimError for a generator of Python that stands half-way, whose state cannot be kept.
    """

    def __init__(self, *objects: Any) -> None:
        self._found: list[tuple[Any, Any]] = []
        self._slotted: list[tuple[Any, dict[str, Any]]] = []
        self._seen: dict[int, Any] = {}  # the object is kept, so that no other gets its id
        todo = list(objects)
        while todo:
            one = todo.pop()
            if isinstance(one, _FIXED) or id(one) in self._seen:
                continue
            self._seen[id(one)] = one
            todo += self._keep(one)

    def _keep(self, one: Any) -> list[Any]:
        """What can be reached from it."""
        if isinstance(one, np.ndarray):
            if one.flags.writeable:
                self._found.append((one, one.copy()))
            return []
        if isinstance(one, np.random.Generator):
            self._found.append((one, one.bit_generator.state))
            return []
        if isinstance(one, random.Random):
            self._found.append((one, one.getstate()))
            return []
        if type(one).__name__ == "generator":
            raise GpusimError(f"a generator that stands half-way cannot be kept: {one.__qualname__}")
        if isinstance(one, tuple | frozenset):
            return list(one)
        if isinstance(one, MethodType):
            return [one.__self__]
        if isinstance(one, FunctionType):
            return list(one.__closure__ or ())
        if isinstance(one, CellType):
            self._slotted.append((one, {"cell_contents": one.cell_contents}))
            return [one.cell_contents]
        reached: list[Any] = []
        if isinstance(one, dict):
            self._found.append((one, dict(one)))
            reached += [*one.keys(), *one.values()]
        elif isinstance(one, list | deque | set):
            self._found.append((one, list(one)))
            reached += one
        if isinstance(attributes := getattr(one, "__dict__", None), dict) and not type(one).__module__.startswith(_FOREIGN):
            self._found.append((attributes, dict(attributes)))
            reached += attributes.values()
        kind: Any = type(one)
        if slots := _slots(kind):
            held = {name: getattr(one, name) for name in slots if hasattr(one, name)}
            self._slotted.append((one, held))
            reached += held.values()
        return reached

    def restore(self) -> None:
        """All is as it was; any number of times."""
        for one, then in self._found:
            if isinstance(one, np.ndarray):
                one[...] = then
            elif isinstance(one, np.random.Generator):
                one.bit_generator.state = then
            elif isinstance(one, random.Random):
                one.setstate(then)
            else:
                one.clear()
                one.extend(then) if isinstance(one, list | deque) else one.update(then)
        for one, held in self._slotted:
            for name, value in held.items():
                object.__setattr__(one, name, value)  # frozen ones, too


@cache
def _slots(kind: Any) -> tuple[str, ...]:
    """Names of the attributes that objects of this class keep without a dict."""
    if kind.__module__.split(".")[0] in (*_FOREIGN, "builtins", "numpy", "collections", "random"):
        return ()
    found = [name for each in kind.__mro__ for name in vars(each).get("__slots__", ())]
    return tuple(name for name in found if name not in ("__dict__", "__weakref__") and isinstance(name, str))
