"""Named tuples of arrays that compiled functions hand on as one pointer, or find by an address that stands in a table.

Numba passes such a tuple as seven values for each of its arrays.  With twenty arrays, and a hundred functions that hand them
on, three quarters of what LLVM gets is the packing of arguments.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar
from weakref import WeakValueDictionary

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import config, types
from numba.core import cgutils
from numba.core.datamodel import default_manager, models
from numba.core.typing.templates import AttributeTemplate
from numba.extending import (
    NativeValue,
    infer_getattr,
    intrinsic,
    lower_getattr_generic,
    register_model,
    typeof_impl,
    unbox,
)
from numba.np.numpy_support import as_dtype

Tables = TypeVar("Tables", bound=type)
PARTS = default_manager[types.int64[::1]]._fields  # of an array, in order


def by_pointer(tables: Tables) -> Tables:
    """Decorate a NamedTuple of arrays that compiled functions only read the fields of: they make and change none."""

    @typeof_impl.register(tables)
    def pointed(value: Any, context: Any) -> Any:
        found = typeof_impl.dispatch(tuple)(value, context)
        return None if found is None else Pointer(found)

    return tables


def _parts(array: Any) -> list[tuple[str, int]]:
    """The words that stand for an array, without what its type says: so a tuple takes few lines of the processor's cache."""
    strides = range(array.ndim - (array.layout == "C"))
    return [("data", 0), *(("shape", axis) for axis in range(array.ndim)), *(("strides", axis) for axis in strides)]


class Pointer(types.Type):  # type: ignore[misc]
    """The type of such a tuple."""

    def __init__(self, pointed: Any) -> None:
        self.pointed, self.fields, self.types = pointed, pointed.fields, pointed.types
        self.parts = [_parts(array) for array in self.types]
        self.words = sum(map(len, self.parts))
        super().__init__(f"Pointer({pointed})")

    def places(self, at: int) -> Any:
        """Of each part of an array its word."""
        first = sum(map(len, self.parts[:at]))
        return {part: first + i for i, part in enumerate(self.parts[at])}

    def field(self, name: str) -> int:
        """Which of the fields has this name."""
        return int(self.fields.index(name))


WORD = ir.IntType(64)


@register_model(Pointer)
class _Model(models.PrimitiveModel):  # type: ignore[misc]
    def __init__(self, manager: Any, kind: Pointer) -> None:
        super().__init__(manager, kind, WORD.as_pointer())


@infer_getattr
class _Fields(AttributeTemplate):  # type: ignore[misc]
    key = Pointer

    def generic_resolve(self, kind: Pointer, name: str) -> Any:
        return kind.types[kind.field(name)] if name in kind.fields else None


@cache
def _itemsize(dtype: Any) -> int:
    """Of the rows of an array; LLVM makes a module to tell, at each access."""
    return int(as_dtype(dtype).itemsize)


@lower_getattr_generic(Pointer)
def _field(context: Any, builder: Any, kind: Pointer, pointer: Any, name: str) -> Any:
    at = kind.field(name)
    array, places = kind.types[at], kind.places(at)
    model = context.data_model_manager[array]

    def read(part: str, axis: int, made_as: Any = WORD) -> Any:
        where = builder.gep(pointer, [ir.Constant(WORD, places[part, axis])], inbounds=True, source_etype=WORD)
        found = builder.load(builder.bitcast(where, made_as.as_pointer()))
        found.set_metadata("invariant.load", builder.module.add_metadata([]))  # what is stored into arrays leaves it as it is
        return found

    itemsize = context.get_constant(types.intp, _itemsize(array.dtype))
    made, nitems = ir.Constant(model.get_value_type(), None), None  # without an owner: the tuple keeps its arrays alive
    for axis in range(array.ndim):
        shape = read("shape", axis)
        nitems = shape if nitems is None else builder.mul(nitems, shape)
        stride = read("strides", axis) if ("strides", axis) in places else itemsize
        made = builder.insert_value(made, shape, (PARTS.index("shape"), axis))
        made = builder.insert_value(made, stride, (PARTS.index("strides"), axis))
    data = read("data", 0, model.get_value_type().elements[PARTS.index("data")])
    for part, value in (("data", data), ("nitems", nitems), ("itemsize", itemsize)):
        made = builder.insert_value(made, value, PARTS.index(part))
    return made


@unbox(Pointer)
def _unboxed(kind: Pointer, value: Any, c: Any) -> Any:
    found = c.unbox(kind.pointed, value)
    place = cgutils.alloca_once(c.builder, WORD, size=kind.words)
    for at in range(len(kind.types)):
        for (part, axis), word in kind.places(at).items():
            value = c.builder.extract_value(found.value, (at, PARTS.index(part)) + ((axis,) if part != "data" else ()))
            value = c.builder.ptrtoint(value, WORD) if part == "data" else value
            c.builder.store(value, c.builder.gep(place, [ir.Constant(WORD, word)], inbounds=True, source_etype=WORD))
    # The stores before a call are no change of what the call reads: LLVM must not see that it is the same memory.
    same = c.builder.asm(ir.FunctionType(place.type, [place.type]), "", "=r,0,~{memory}", [place], True)
    return NativeValue(same, is_error=found.is_error, cleanup=found.cleanup)


class Placed:
    """A tuple in one place of memory, as compiled code has it: `tables_at` finds it by `address` as long as this object lives.

    TypeError for a tuple of another type: compiled code would read it as if it were of this one.
    """

    def __init__(self, tables: Any, kind: Any) -> None:
        self.tables = tables
        if config.DISABLE_JIT:
            self.address = id(self)
        else:
            for name, array, (dtype, axes) in zip(kind.fields, tables, _declared(kind), strict=True):
                if array.dtype != dtype or array.ndim != axes or not array.flags.carray:
                    raise TypeError(f"{name} is not an array of {axes} axes of {dtype} that lies in one piece, in C's order")
            parts = zip(tables, kind.parts, strict=True)
            self._words = np.array([_word(array, *part) for array, mine in parts for part in mine], np.int64)
            self.address = int(self._words.ctypes.data)
        _placed[self.address] = self


_placed: WeakValueDictionary[int, Placed] = WeakValueDictionary()


@cache
def _declared(kind: Any) -> list[tuple[Any, int]]:
    """Type and number of axes of each array."""
    return [(as_dtype(array.dtype), array.ndim) for array in kind.types]


def _word(array: Any, part: str, axis: int) -> int:
    return int(array.ctypes.data if part == "data" else getattr(array, part)[axis])


def tables_at(kind: Any) -> Callable[[int], Any]:
    """What gives compiled code the tuple of this type that has been `Placed` at an address."""
    if config.DISABLE_JIT:
        return lambda address: _placed[int(address)].tables

    @intrinsic
    def from_address(typing: Any, address: Any) -> Any:
        def build(context: Any, builder: Any, _signature: Any, args: Any) -> Any:
            return builder.inttoptr(args[0], context.get_value_type(kind))

        return kind(types.int64), build

    return from_address
