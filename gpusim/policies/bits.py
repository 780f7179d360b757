"""Lowest and highest bit set of a positive integer: one machine instruction each, compiled and interpreted alike."""

from __future__ import annotations

from typing import Any

from numba import config
from numba.cpython.unsafe.numbers import leading_zeros, trailing_zeros

from gpusim.policies.compiled import helper

_leading: Any = leading_zeros
_trailing: Any = trailing_zeros

if config.DISABLE_JIT:

    def lowest(x: int) -> int:
        """Index of the lowest bit set in x > 0."""
        return int(x & -x).bit_length() - 1

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
