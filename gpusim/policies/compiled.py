"""Verbs of policies: compiled for their contract's signature when their module is imported, found again on disk."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit
from numba.core import config

I64 = npt.NDArray[np.int64]
F64 = npt.NDArray[np.float64]
U8 = npt.NDArray[np.uint8]


@cache
def _shared() -> bytes:
    """The helpers that verbs inline live in the files beside this one."""
    digest = hashlib.sha256()
    for file in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(file.read_bytes())
    return digest.digest()


def verb(signature: Any) -> Callable[[Callable[..., Any]], Any]:
    """Decorate a verb: compiled now for `signature`, cached on disk; plain Python without numba's compiler.

    Numba's cache watches only the file of the function itself; the stamp also covers the helpers it may inline.
    """

    def compile_now(function: Callable[..., Any]) -> Any:
        if config.DISABLE_JIT:
            return function
        dispatcher = njit(function)
        dispatcher.enable_caching()
        own = Path(function.__code__.co_filename).read_bytes()
        dispatcher._cache._cache_file._source_stamp = hashlib.sha256(own + _shared()).hexdigest()
        dispatcher.compile(signature)
        dispatcher.disable_compile()
        return dispatcher

    return compile_now


def helper(function: Callable[..., Any]) -> Any:
    """Decorate what verbs call: compiled as part of its caller, wherever that is."""
    return njit(function)
