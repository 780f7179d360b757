"""Two instructions on words of bits that numba lacks, compiled and interpreted alike."""

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
