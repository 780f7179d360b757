"""What a request becomes: the size of its block, and of a segment that is taken for it."""

from __future__ import annotations

from gpusim.base import bits
from gpusim.base.compiled import outlined
from gpusim.policies.compiled import I64, helper
from gpusim.policies.place.parts.pytorch.layout import (
    DIVIDED,
    DIVISIONS,
    LARGE_SEGMENT,
    OWN_ROUNDING,
    OWN_SEGMENT,
    SMALL_SEGMENT,
    SMALL_SIZE,
    K,
)


@helper
def step(S: I64, size: int) -> int:
    """With roundup_power2_divisions, what a request of this size is rounded up to a multiple of; 0: to 512 as usual."""
    power = bits.highest(size)
    divisions = S[DIVISIONS + min(max(power - 20, 0), 15)]
    return (1 << power) // divisions if divisions > 1 and size > K * divisions else 0


@outlined
def divided(S: I64, size: int) -> int:
    unit = max(step(S, size), K)
    return (size + unit - 1) // unit * unit


@helper
def rounded(S: I64, size: int) -> int:
    """The size of the block for a request of `size` > 0."""
    if S[DIVIDED] != 0:
        return divided(S, size)
    return (size + K - 1) // K * K


@outlined
def largest_request(S: I64, block: int) -> int:
    """The largest request for which a block of this size is large enough."""
    unit = max(step(S, block), K)
    return block // unit * unit


@helper
def segment_size(S: I64, size: int) -> int:
    if size <= SMALL_SIZE:
        return SMALL_SEGMENT
    if size < OWN_SEGMENT:
        return S[LARGE_SEGMENT]
    return (size + OWN_ROUNDING - 1) // OWN_ROUNDING * OWN_ROUNDING
