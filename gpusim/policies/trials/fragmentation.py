"""Four numbers that are all called fragmentation, each under a name of its own.

    L  bytes requested by the live units        H  bytes held from the device       F = H − R  bytes held and free
    R  bytes of their blocks, as rounded        X  largest request with room in what is held

Papers quote only the utilisation; the four answer different questions and can disagree.  All are plain functions that
kernels may call.

Sources: internal and external as in any textbook (Knuth 1, 2.5); external as in RMM's arena dump and TensorFlow's BFC
log; utilisation as in GMLake (ASPLOS 2024) and STAlloc (2025).
"""

from __future__ import annotations

from numba.extending import register_jitable


@register_jitable
def internal(requested: float, rounded: float) -> float:
    """1 − L/R: the share of the blocks that only rounding up takes; 0 when nothing is live."""
    return 1.0 - requested / rounded if rounded > 0 else 0.0


@register_jitable
def utilisation(peak_live: float, peak_held: float) -> float:
    """Peak L (or R) over peak H; 1 when nothing was ever held.  1 minus it is what GMLake calls fragmentation."""
    return peak_live / peak_held if peak_held > 0 else 1.0


@register_jitable
def external(largest: float, free: float) -> float:
    """1 − X/F: the share of the free bytes that one request cannot have; 0 when nothing is free."""
    return max(0.0, 1.0 - largest / free) if free > 0 else 0.0


@register_jitable
def failure(request: float, free: float) -> bool:
    """Whether a refused request (bytes) was refused although that many bytes were free."""
    return free >= request
