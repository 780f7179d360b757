"""What Python calls: compiled, or found on disk, when a run first calls it or asks where it is."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from numba import config, njit, types

from gpusim.base.compiled import reached
from gpusim.base.compiled.disk import keep
from gpusim.base.compiled.kernels import LINKS, WHOLE, callee

# For code that makes no arrays, so that no references are counted; a division by zero gives inf or nan.
BARE = {"_nrt": False, "error_model": "numpy"}
_HOW = tuple(f"gpusim.base.compiled.{name}" for name in ("kernels", "pointers", "ahead", "lean", "linking"))


class CompiledEntry:
    """A function that is compiled for one signature when it is first needed.

    Python calls it; compiled code may, too, and knows it as the function that numba made.
    """

    def __init__(self, function: Callable[..., Any], signature: Any, **options: Any) -> None:
        functools.update_wrapper(self, function)
        self.py_func = function
        self.signature = signature
        self.options = options

    @property
    def waiting(self) -> Any:
        """What numba makes of it as long as nothing has been compiled."""
        return _waiting(self.py_func, self.options)

    @functools.cached_property
    def compiled(self) -> Any:
        """What numba made of it; compiled now where it has not been."""
        made = self.waiting
        made.compile(self.signature)
        made.disable_compile()
        return made

    def __call__(self, *arguments: Any) -> Any:
        return self.compiled(*arguments)

    @property
    def _numba_type_(self) -> Any:
        """What compiled code takes it for."""
        return types.Dispatcher(self.compiled)

    @property
    def signatures(self) -> list[Any]:
        """Those for which it is compiled: its own, or none so far."""
        return self.compiled.signatures if "compiled" in vars(self) else []

    @property
    def stats(self) -> Any:
        """How often it was found on disk."""
        return self.compiled.stats

    def get_compile_result(self, signature: Any) -> Any:
        """As of numba's own functions."""
        return self.compiled.get_compile_result(signature)


def entry(signature: Any = None, **options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Decorate an entry that calls kernels and makes no arrays; signature and options as for `kept`."""
    return kept(signature, **BARE | options)


def kept(signature: Any = None, **options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Decorate a function that Python calls: its machine code is found again by the next process.

    signature  what it is compiled for, and nothing else; without one, the types with which it is called
    options    those of njit
    Without numba's compiler (NUMBA_DISABLE_JIT=1) it stays the Python function that it is.
    """

    def decorate(function: Callable[..., Any]) -> Any:
        if config.DISABLE_JIT:
            return function
        if signature is not None:
            return CompiledEntry(function, signature, **options)
        made = _waiting(function, options)
        return within(made, function, options) if BARE.items() <= options.items() else made

    return decorate


def _waiting(function: Callable[..., Any], options: dict[str, Any]) -> Any:
    return keep(njit(**WHOLE, **options)(function), function, lambda: stamp(function, options))


def within(made: Any, function: Callable[..., Any], options: dict[str, Any]) -> Any:
    """The same, which compiled code knows as a kernel: it is part of its callers there, and not machine code of its own."""
    part = callee(function, **options)
    made.get_call_template, made.get_overload = part.get_call_template, part.get_overload
    return made


def direct(function: Any) -> Any:
    """The function that numba made of an entry, for a caller in a loop: 0.5 us less for each call."""
    return function.compiled if isinstance(function, CompiledEntry) else function


def made(*values: Any) -> None:
    """Have those of the values compiled that are entries, now."""
    for value in values:
        if isinstance(value, CompiledEntry):
            _ = value.compiled


def is_cold(value: Any) -> bool:
    """Whether an entry has to be compiled, and will then be found on disk: nothing of it is there as its source is now."""
    kept_as = getattr(value.waiting if isinstance(value, CompiledEntry) else value, "_cache", None)
    return getattr(kept_as, "is_empty", False)


def stamp(function: Callable[..., Any], options: Any = None) -> str:
    """What the machine code of an entry depends on, as a digest: all code that it reaches, and how that is compiled."""
    return reached.digest(function, options=options) + _how()


@functools.cache
def _how() -> str:
    return "".join(reached.of_module(name) for name in _HOW if LINKS or name != _HOW[-1])
