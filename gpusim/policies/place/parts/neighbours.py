"""Blocks in a row, each of which knows its neighbours by the words PREV and NEXT; 0 is none."""

from __future__ import annotations

from gpusim.policies.compiled import I64, helper
from gpusim.policies.place.parts.bins import NEXT, PREV


@helper
def link(S: I64, p: int, prev: int, next_: int) -> None:
    """Block p stands between these two."""
    S[p + PREV] = prev
    S[p + NEXT] = next_
    if prev != 0:
        S[prev + NEXT] = p
    if next_ != 0:
        S[next_ + PREV] = p


@helper
def unlink(S: I64, p: int) -> None:
    """The neighbours of block p are each other's; p still names them."""
    prev, next_ = S[p + PREV], S[p + NEXT]
    if prev != 0:
        S[prev + NEXT] = next_
    if next_ != 0:
        S[next_ + PREV] = prev
