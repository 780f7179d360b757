"""Single bits of an int64 word, compiled and interpreted alike; finding one is one machine instruction."""

from __future__ import annotations

from typing import Any

from numba import config
from numba.cpython.unsafe.numbers import leading_zeros, trailing_zeros

from gpusim.policies.compiled import helper

_leading: Any = leading_zeros
_trailing: Any = trailing_zeros


@helper
def bit(k: int) -> int:
    """The word in which only bit k is set, 0 <= k < 64; the top one is the sign."""
    return 1 << k if k < 63 else -1 << 63


if config.DISABLE_JIT:

    def lowest(x: int) -> int:
        """Index of the lowest bit set in x, which is not 0."""
        return (int(x) & -int(x)).bit_length() - 1

    def highest(x: int) -> int:
        """Index of the highest bit set in x > 0: floor(log2 x)."""
        return int(x).bit_length() - 1

else:

    @helper
    def lowest(x: int) -> int:
        return _trailing(x)

    @helper
    def highest(x: int) -> int:
        return 63 - _leading(x)
