"""How verbs of policies are compiled: for their contract's signature, found again on disk by the next process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils, config
from numba.extending import intrinsic

from gpusim.base.compiled import callee, kept

I64 = npt.NDArray[np.int64]
F64 = npt.NDArray[np.float64]
U8 = npt.NDArray[np.uint8]


def verb(signature: Any) -> Callable[[Callable[..., Any]], Any]:
    """Decorate a verb: compiled for `signature` when a run asks for it; plain Python without numba's compiler."""
    return kept(signature)


def helper(function: Callable[..., Any]) -> Any:
    """Decorate what verbs call: compiled as part of its caller, wherever that is.

    Helpers make no arrays, so references to them need not be counted, which would cost a third of a verb's time.
    """
    return callee(function, forceinline=True)


@intrinsic
def _prefetch(typing: Any, array: Any, index: Any) -> Any:
    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        address = builder.bitcast(builder.gep(data, [args[1]]), cgutils.voidptr_t)
        i32 = cgutils.int32_t
        kind = ir.FunctionType(ir.VoidType(), [cgutils.voidptr_t, i32, i32, i32])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0i8")
        builder.call(function, [address, i32(0), i32(3), i32(1)])  # for reading, into all caches, data
        return context.get_dummy_value()

    return types.none(array, types.uint64), build


if config.DISABLE_JIT:

    def prefetch(S: I64, i: int) -> None:
        """Nothing to fetch ahead of in plain Python."""

else:

    @helper
    def prefetch(S: I64, i: int) -> None:
        """Tell the processor that S[i] is needed soon."""
        _prefetch(S, np.uint64(i))
