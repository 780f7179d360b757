"""Compiled functions that travel as addresses: numba needs 40 us to turn one function argument into one, at every call."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from numba import config, types
from numba.core import cgutils
from numba.extending import intrinsic

_interpreted: dict[int, Callable[..., Any]] = {}


class Callback:
    """A Python function that compiled code calls like one of its own, for as long as this object lives.

    It takes `arguments` whole numbers and answers a float, and must not raise: nothing would come of it.
    """

    def __init__(self, function: Callable[..., float], arguments: int) -> None:
        self.function = function
        self._held = ctypes.CFUNCTYPE(ctypes.c_double, *[ctypes.c_int64] * arguments)(function)

    @property
    def address(self) -> tuple[int, int]:
        """As `address` has it of compiled functions: there is no code but that which C calls."""
        if config.DISABLE_JIT:
            return address(self.function, None)
        return ctypes.cast(self._held, ctypes.c_void_p).value or 0, 0


def address(function: Any, signature: Any) -> tuple[int, int]:
    """Where the compiled `function` begins, as the pair which `function_at(signature)` makes a function again."""
    if isinstance(function, Callback):
        return function.address
    if config.DISABLE_JIT:
        _interpreted[id(function)] = function
        return id(function), 0
    compiled = function.get_compile_result(signature)
    library, names = compiled.library, compiled.fndesc
    return (
        library.get_pointer_to_function(names.llvm_cfunc_wrapper_name),
        library.get_pointer_to_function(names.llvm_func_name),
    )


def function_at(signature: Any) -> Any:
    """The kernel-side inverse of `address`: (c_addr, jit_addr) -> first-class function of this signature."""
    if config.DISABLE_JIT:
        return lambda c_addr, jit_addr: _interpreted[int(c_addr)]
    function_type = types.FunctionType(signature)

    @intrinsic
    def from_address(typing: Any, c_addr: Any, jit_addr: Any) -> Any:
        def build(context: Any, builder: Any, _signature: Any, args: Any) -> Any:
            function = cgutils.create_struct_proxy(function_type)(context, builder)
            pointer = context.get_value_type(types.voidptr)
            function.c_addr = builder.inttoptr(args[0], pointer)
            function.jit_addr = builder.inttoptr(args[1], pointer)
            return function._getvalue()

        return function_type(types.int64, types.int64), build

    return from_address
