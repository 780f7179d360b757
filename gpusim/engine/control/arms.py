"""What the controller `bandit` chooses among: marks of early release, and how many operators ahead tensors come back."""

from __future__ import annotations

from gpusim.engine.control.controller import Choice

MARKS = (0.0, 0.05, 0.1, 0.2)
DEPTHS = (0, 1, 2, 4, 8, 16, 32)


def _choice(mark: float, depth: int) -> Choice:
    release = f"watermark(low={mark:g}, high={2 * mark:g})" if mark else "none"
    return Choice(0, release, f"next_k(k={depth})" if depth else "none")


ARMS = tuple(_choice(mark, depth) for mark in MARKS for depth in DEPTHS)
