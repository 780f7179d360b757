"""How the island is compiled: ahead of the first call, for one declared signature, found again by the next process.

What is compiled here inlines functions of several files, so what is kept of it is stamped with the contents of all of them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from numba import config, njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from gpusim.base.errors import note
from gpusim.base.kept import keep

_PART: dict[str, Any] = {}
_WHOLE: dict[str, Any] = {}
try:
    from gpusim.base.linking import PartCompiler, WholeCompiler
except (ImportError, AttributeError) as error:
    note(f"with this version of numba compiling takes longer: {error}")
else:
    _PART, _WHOLE = {"pipeline_class": PartCompiler}, {"pipeline_class": WholeCompiler}


def _stamp() -> str:
    here = Path(__file__).parents[1]
    rooms = (here / "base", here / "engine", here / "results")
    files = [*sorted(file for room in rooms for file in room.rglob("*.py")), here / "policies" / "contract.py"]
    digest = hashlib.sha256()
    for file in files:
        digest.update(file.read_bytes())
    return digest.hexdigest()


def callee(function: Callable[..., Any], *, forceinline: bool = False, **options: Any) -> Any:
    """What only compiled code calls: once for all arguments of the same types, and without doors to Python.

    Numba would compile it again for every literal that stands in a call; constants reach it when it is inlined.  Inlining is
    always said: else numba does with it as with the caller that happens to be compiled first.
    """
    options |= {"no_cpython_wrapper": True, "no_cfunc_wrapper": True, "_nrt": False, "forceinline": forceinline}
    dispatcher = njit(**_PART, **options)(function)
    if not config.DISABLE_JIT:
        template = dispatcher.get_call_template
        dispatcher.get_call_template = lambda args, kws: template(
            [types.unliteral(a) for a in args], {k: types.unliteral(a) for k, a in kws.items()}
        )
    return dispatcher


def kernel(function: Callable[..., Any]) -> Any:
    """Decorate a function that only other kernels call.

    Without doors to Python and without reference counts (kernels make no arrays) the island compiles in half of the time.
    Python must not call one: only entries have a door.
    """
    return callee(function, error_model="numpy", forceinline=True)


def outlined(function: Callable[..., Any]) -> Any:
    """The same for what is called from many places with few arguments: a call is cheaper than many copies."""
    return callee(function, error_model="numpy")


def cached(function: Callable[..., Any], content: str, signature: Any = None, **options: Any) -> Any:
    """The compiled function, kept on disk as long as `content` is the same; plain Python without numba's compiler.

    With a signature it is compiled now and for nothing else, without one at the first call.  options: those of njit.
    """
    if config.DISABLE_JIT:
        return function
    return keep(njit(**_WHOLE, **options)(function), function, content, signature)


def entry(signature: Any) -> Callable[[Callable[..., Any]], Any]:
    """Decorate an entry point of the island: compiled for `signature` when its module is imported."""
    return lambda function: cached(function, _stamp(), signature, _nrt=False, error_model="numpy")


# Verbs travel as addresses: numba needs 40 us to turn one function argument into an address, at every call.
_interpreted: dict[int, Callable[..., Any]] = {}


def address(function: Any, signature: Any) -> tuple[int, int]:
    """Where the compiled `function` begins, as the pair that `verb(signature)` turns into a first-class function again."""
    if config.DISABLE_JIT:
        _interpreted[id(function)] = function
        return id(function), 0
    compiled = function.get_compile_result(signature)
    library, names = compiled.library, compiled.fndesc
    return (
        library.get_pointer_to_function(names.llvm_cfunc_wrapper_name),
        library.get_pointer_to_function(names.llvm_func_name),
    )


def verb(signature: Any) -> Any:
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
