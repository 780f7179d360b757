"""What verbs call seldom: compiled when it is first called, not together with every verb that may call it.

The caller knows a symbol: a function that tells where the addresses of the compiled function stand.  While they are 0, a door
to Python is called, which compiles the function, or finds it on disk, and writes them down.  So a large model costs no more
compile time than what a run uses of it, and a call costs hardly more than one of a near function.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np
from llvmlite import binding, ir  # type: ignore[import-untyped]
from numba import types
from numba.core import config
from numba.extending import intrinsic

from gpusim.base import jit
from gpusim.policies import contract
from gpusim.policies.compiled import helper, stamp

_doors: dict[str, Callable[[], int]] = {}  # module.function -> what compiles it
_kept: list[Any] = []  # compiled code knows their addresses for as long as the process lives
_I64 = ir.IntType(64)
LOADS = ("gpusim.policies",)  # packages whose modules are imported by name


def _tells(name: str, address: int) -> None:
    """Define the symbol `name`: a function without arguments that answers the address."""
    module = ir.Module(name)
    module.triple = binding.get_process_triple()
    function = ir.Function(module, ir.FunctionType(_I64, []), name)
    ir.IRBuilder(function.append_basic_block()).ret(_I64(address))
    machine = binding.Target.from_triple(module.triple).create_target_machine()
    engine = binding.create_mcjit_compiler(binding.parse_assembly(str(module)), machine)
    engine.finalize_object()
    binding.add_symbol(name, engine.get_function_address(name))
    _kept.append(engine)


@intrinsic
def _word(typing: Any, address: Any) -> Any:
    """The integer at this address."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.load(builder.inttoptr(args[0], _I64.as_pointer()))

    return types.int64(types.int64), build


def compile_now(name: str) -> None:
    """Leave a far function, by "module.function", compiled on disk, before a verb calls it."""
    import_module(name.rpartition(".")[0])
    if name in _doors:
        _doors[name]()


def far(function: Callable[..., int]) -> Any:
    """Decorate a function of (S, integers...) to an integer."""
    if config.DISABLE_JIT:
        return function
    signature = types.int64(contract.S, *[types.int64] * (function.__code__.co_argcount - 1))
    where = np.zeros(2, np.int64)

    def door() -> int:
        content = stamp(function.__code__.co_filename)
        compiled = jit.cached(function, content, signature, error_model="numpy")
        where[:] = jit.address(compiled, signature)
        _kept.append(compiled)
        return 0

    name = f"{function.__module__}.{function.__qualname__}"
    _doors[name] = door
    _kept.append(ctypes.CFUNCTYPE(ctypes.c_int64)(door))
    binding.add_symbol(f"{name}.door", ctypes.cast(_kept[-1], ctypes.c_void_p).value)
    _kept.append(where)
    _tells(f"{name}.where", where.ctypes.data)
    tell: Any = types.ExternalFunction(f"{name}.where", types.int64())
    open_door: Any = types.ExternalFunction(f"{name}.door", types.int64())
    as_function = jit.verb(signature)

    @helper
    def call(S, *arguments):  # type: ignore[no-untyped-def]
        at = tell()
        if _word(at) == 0:
            open_door()
        return as_function(_word(at), _word(at + 8))(S, *arguments)

    return call
