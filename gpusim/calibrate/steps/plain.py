"""Stands in for numba where that is not installed: what it would compile runs as the Python that it is."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any


class _Anything:
    """Types of signatures, which are never read."""

    def __getattr__(self, name: str) -> Any:
        return self

    def __call__(self, *_: Any, **__: Any) -> Any:
        return self


class config:
    """As numba is with its compiler switched off."""

    DISABLE_JIT = 1


types = from_dtype = _Anything()


def njit(function: Any = None, *_: Any, **options: Any) -> Any:
    """The function as it is."""
    if options or not callable(function) or isinstance(function, _Anything):
        return lambda later: later
    return function


def _compiled() -> ModuleType:
    """As `gpusim.base.compiled` is where nothing is compiled: its decorators, with options or without."""
    found = ModuleType("gpusim.base.compiled")
    for name in ("callee", "inlined", "kernel", "outlined"):
        setattr(found, name, njit)
    for name in ("entry", "kept"):
        setattr(found, name, lambda *_, **__: lambda function: function)
    return found


def install() -> None:
    """From here on `import numba` finds this, unless there is a numba."""
    try:
        import numba  # noqa: F401
    except ImportError:
        sys.modules["numba"] = sys.modules[__name__]
        sys.modules["gpusim.base.compiled"] = _compiled()
