"""Bits of 64-bit words, compiled and interpreted alike: instructions that numba lacks, and one bit."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import config, types
from numba.extending import intrinsic

from gpusim.base.compiled import kernel

if config.DISABLE_JIT:

    def popcount(word: Any) -> int:
        return int(word).bit_count()

    def trailing_zeros(word: Any) -> int:
        """The lowest bit that is set; of a word without one, 64."""
        word = int(word)
        return (word & -word).bit_length() - 1 if word else 64

    def leading_zeros(word: Any) -> int:
        """Bits above the highest that is set, of a word >= 0; of one without any, 64."""
        return 64 - int(word).bit_length()

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

    @intrinsic
    def _leading_zeros(typing: Any, word: Any) -> Any:
        def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return builder.ctlz(args[0], context.get_constant(types.boolean, False))

        return types.int64(types.uint64), build

    @kernel
    def popcount(word: Any) -> int:
        return int(_popcount(np.uint64(word)))

    @kernel
    def trailing_zeros(word: Any) -> int:
        """The lowest bit that is set; of a word without one, 64."""
        return int(_trailing_zeros(np.uint64(word)))

    @kernel
    def leading_zeros(word: Any) -> int:
        """Bits above the highest that is set; of a word without any, 64."""
        return int(_leading_zeros(np.uint64(word)))


@kernel
def bit(k: int) -> int:
    """The signed word in which only bit k is set, 0 <= k < 64; the top one is the sign."""
    return 1 << k if k < 63 else -1 << 63


@kernel
def lowest(x: int) -> int:
    """Index of the lowest bit set in x, which is not 0."""
    return trailing_zeros(x)


@kernel
def highest(x: int) -> int:
    """Index of the highest bit set in x > 0: floor(log2 x)."""
    return 63 - leading_zeros(x)
