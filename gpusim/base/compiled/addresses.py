"""Compiled functions that travel as addresses: numba needs 40 us to turn one function argument into one, at every call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import config, types
from numba.core import cgutils
from numba.extending import intrinsic

_interpreted: dict[int, Callable[..., Any]] = {}


def address(function: Any, signature: Any) -> tuple[int, int]:
    """Where the compiled `function` begins, as the pair which `function_at(signature)` makes a function again."""
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
