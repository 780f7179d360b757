"""Robust least squares: Levenberg and Marquardt's steps on a soft absolute value, deterministic, within bounds."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

F64 = npt.NDArray[np.float64]

WIDTH = 0.1
"""Residuals well below it count with their squares, those above with their size."""


def minimise(residual: Callable[[F64], F64], start: F64, low: F64, high: F64, steps: int = 60) -> tuple[F64, float]:
    """The least mean loss from `start`, within `low` and `high`: where, and how much."""
    x, damping = np.clip(start, low, high), 1e-2
    r = residual(x)
    loss = _loss(r)
    for _ in range(steps):
        weight = 1 / np.sqrt(1 + (r / WIDTH) ** 2)
        jacobian = np.stack([_slope(residual, x, r, i, high) for i in range(len(x))], axis=1)
        square, gradient = jacobian.T @ (jacobian * weight[:, None]), jacobian.T @ (weight * r)
        for _ in range(12):
            step = np.linalg.solve(square + damping * np.diag(np.diag(square) + 1e-9), -gradient)
            tried = np.clip(x + step, low, high)
            at_tried = residual(tried)
            new = _loss(at_tried)
            if new < loss:
                break
            damping *= 4
        else:
            return x, loss
        gain, x, r, loss, damping = loss - new, tried, at_tried, new, max(damping / 5, 1e-9)
        if gain < 1e-6 * loss:
            break
    return x, loss


def _loss(r: F64) -> float:
    return float(np.mean(WIDTH**2 * (np.sqrt(1 + (r / WIDTH) ** 2) - 1)))


def _slope(residual: Callable[[F64], F64], x: F64, r: F64, i: int, high: F64) -> F64:
    step = 1e-4 if x[i] + 1e-4 <= high[i] else -1e-4
    moved = x.copy()
    moved[i] += step
    return (residual(moved) - r) / step
