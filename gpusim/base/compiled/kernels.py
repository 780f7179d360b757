"""What only compiled code calls: compiled with the entry that reaches it, once for all its callers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import config, njit, types

from gpusim.base.errors import note

PART: dict[str, Any] = {}
WHOLE: dict[str, Any] = {}
"""Options of njit for what compiled code calls, and for what Python calls."""
LINKS = False  # whether what is compiled together is finished together
try:
    from gpusim.base.compiled.lean import EntryCompiler, KernelCompiler

    PART, WHOLE = {"pipeline_class": KernelCompiler}, {"pipeline_class": EntryCompiler}
    from gpusim.base.compiled.linking import PartCompiler, WholeCompiler
except (ImportError, AttributeError) as error:
    note(f"with this version of numba compiling takes longer: {error}")
else:
    LINKS, PART, WHOLE = True, {"pipeline_class": PartCompiler}, {"pipeline_class": WholeCompiler}


def callee(function: Callable[..., Any], *, forceinline: bool = False, **options: Any) -> Any:
    """What only compiled code calls: once for all arguments of the same types, and without doors to Python.

    Numba would compile it again for every literal that stands in a call; constants reach it when it is inlined.  Inlining is
    always said: else numba does with it as with the caller that happens to be compiled first.
    """
    options |= {"no_cpython_wrapper": True, "no_cfunc_wrapper": True, "_nrt": False, "forceinline": forceinline}
    dispatcher = njit(**PART, **options)(function)
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


def inlined(function: Any) -> Any:
    """An entry as a helper: of any argument types, compiled into its caller."""
    return njit(getattr(function, "py_func", function), forceinline=True)
