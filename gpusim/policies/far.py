"""What verbs call seldom: compiled when it is first called, not together with every verb that may call it.

The caller knows a symbol, which leads to a door in Python; that compiles the function, or finds it on disk, and calls it.
So a large model costs no more compile time than what a run uses of it, and a call some microseconds.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import binding  # type: ignore[import-untyped]
from numba import types
from numba.core import config
from numba.extending import intrinsic

from gpusim.core.jit import cached
from gpusim.policies import contract
from gpusim.policies.compiled import helper, stamp

_doors: list[Any] = []  # compiled code has their addresses for as long as the process lives


@intrinsic
def _address(typing: Any, array: Any) -> Any:
    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        return builder.ptrtoint(data, context.get_value_type(types.int64))

    return types.int64(array), build


def far(function: Callable[..., int]) -> Any:
    """Decorate a function of (S, integers...) to an integer."""
    if config.DISABLE_JIT:
        return function
    integers = function.__code__.co_argcount - 1
    signature = types.int64(contract.S, *[types.int64] * integers)
    compiled: list[Any] = []

    def door(address: int, length: int, *arguments: int) -> int:
        if not compiled:
            compiled.append(cached(function, stamp(function.__code__.co_filename), signature, error_model="numpy"))
        words: Any = (ctypes.c_int64 * length).from_address(address)
        return int(compiled[0](np.frombuffer(words, np.int64), *arguments))

    name = f"{function.__module__}.{function.__qualname__}"
    _doors.append(ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * (integers + 2))(door))
    binding.add_symbol(name, ctypes.cast(_doors[-1], ctypes.c_void_p).value)
    symbol: Any = types.ExternalFunction(name, types.int64(*[types.int64] * (integers + 2)))

    @helper
    def call(S, *arguments):  # type: ignore[no-untyped-def]
        return symbol(_address(S), S.size, *arguments)

    return call
