"""Rows of tables that will be read soon are brought into the processor's cache meanwhile."""

from __future__ import annotations

from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba import config, types
from numba.core import cgutils
from numba.extending import intrinsic

LINE = 64  # bytes of a line of the cache


def _unneeded(array: Any, row: int) -> None:
    """Interpreted code has no use for it."""


@intrinsic
def _fetched(typing: Any, array: Any, row: Any) -> Any:
    def build(context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        made = context.make_array(array)(context, builder, args[0])
        stride = cgutils.unpack_tuple(builder, made.strides, array.ndim)[0]
        byte = ir.IntType(8)
        at = builder.gep(builder.bitcast(made.data, byte.as_pointer()), [builder.mul(args[1], stride)], source_etype=byte)
        word = ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [at.type, word, word, word])
        touch = builder.module.declare_intrinsic("llvm.prefetch", [at.type], kind)
        size = context.get_abi_sizeof(context.get_data_type(array.dtype)) if array.ndim == 1 else 1
        for offset in range(0, size, LINE):
            where = builder.gep(at, [ir.Constant(ir.IntType(64), offset)], source_etype=byte)
            builder.call(touch, [where, ir.Constant(word, 0), ir.Constant(word, 3), ir.Constant(word, 1)])
        return context.get_dummy_value()

    return types.void(array, types.int64), build


fetch = _unneeded if config.DISABLE_JIT else _fetched
"""fetch(array, row): nothing waits for it, and nothing changes but the time that the next access of this row takes."""
