"""How this package is compiled: entries, cached for the contents of all of its files, and two instructions numba lacks."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numba import config, types
from numba.extending import intrinsic

from gpusim.base.jit import cached, kernel, outlined

__all__ = ["entry", "kernel", "outlined", "popcount", "trailing_zeros"]


def _content() -> str:
    here = Path(__file__).parents[1]
    files = sorted(f for room in ("base", "engine/pages", "programs/managed") for f in (here / room).rglob("*.py"))
    return hashlib.sha256(b"".join(f.read_bytes() for f in files)).hexdigest()


_CONTENT = _content()


def entry(function: Callable[..., Any]) -> Any:
    """Decorate what Python calls."""
    return cached(function, _CONTENT, _nrt=False, error_model="numpy")


if config.DISABLE_JIT:

    def popcount(word: Any) -> int:
        return int(word).bit_count()

    def trailing_zeros(word: Any) -> int:
        """The lowest bit that is set; of a word without one, 64."""
        word = int(word)
        return (word & -word).bit_length() - 1 if word else 64

else:

    @intrinsic
    def _popcount(typing: Any, word: Any) -> Any:
        def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return builder.ctpop(args[0])

        return types.int64(types.uint64), build

    @intrinsic
    def _trailing_zeros(typing: Any, word: Any) -> Any:
        def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return builder.cttz(args[0], context.get_constant(types.boolean, False))

        return types.int64(types.uint64), build

    @kernel
    def popcount(word: Any) -> int:
        return int(_popcount(np.uint64(word)))

    @kernel
    def trailing_zeros(word: Any) -> int:
        """The lowest bit that is set; of a word without one, 64."""
        return int(_trailing_zeros(np.uint64(word)))
