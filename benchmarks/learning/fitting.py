"""Fit a network of one hidden layer with numpy: the same numbers for the same seed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Array = Any
Weights = list[Array]  # first (H, N), shift (H,), second (H,), last ()


def begin(rng: np.random.Generator, inputs: int, hidden: int) -> Weights:
    """Weights before the first step."""
    return [
        rng.normal(0.0, 1.0 / np.sqrt(inputs), (hidden, inputs)), np.zeros(hidden),
        rng.normal(0.0, 1.0 / np.sqrt(hidden), hidden), np.zeros(()),
    ]  # fmt: skip


def forward(weights: Weights, x: Array) -> tuple[Array, Array]:
    """(answers (...), hidden units (..., H)) for inputs (..., N)."""
    first, shift, second, last = weights
    units = np.tanh(x @ first.T + shift)
    return units @ second + last, units


def backward(weights: Weights, x: Array, units: Array, slope: Array) -> Weights:
    """The gradient of the weights; slope: that of each answer."""
    n, h = x.shape[-1], units.shape[-1]
    x, units, slope = x.reshape(-1, n), units.reshape(-1, h), slope.reshape(-1)
    inner = slope[:, None] * weights[2] * (1.0 - units**2)
    return [inner.T @ x, inner.sum(0), units.T @ slope, slope.sum()]


def fit(
    rng: np.random.Generator, weights: Weights, x: Array, slope_of: Callable[[Array, Array], Array], steps: int,
    batch: int = 256, rate: float = 0.01,
) -> Weights:  # fmt: skip
    """Adam (Kingma and Ba, ICLR 2015) over batches of rows; slope_of(answers, rows) is the gradient of the loss."""
    mean, square = [np.zeros_like(w) for w in weights], [np.zeros_like(w) for w in weights]
    for step in range(1, steps + 1):
        rows = rng.integers(0, len(x), batch)
        answers, units = forward(weights, x[rows])
        for k, g in enumerate(backward(weights, x[rows], units, slope_of(answers, rows))):
            mean[k] = 0.9 * mean[k] + 0.1 * g
            square[k] = 0.999 * square[k] + 0.001 * g * g
            by = rate * (1.0 - step / (steps + 1)) * mean[k] / (1 - 0.9**step)
            weights[k] = weights[k] - by / (np.sqrt(square[k] / (1 - 0.999**step)) + 1e-8)
    return weights


def unscaled(weights: Weights, mean: Array, spread: Array) -> Weights:
    """The same network for inputs as they are, which it was fitted to as (x - mean) / spread."""
    first, shift, second, last = weights
    return [first / spread, shift - (first / spread) @ mean, second, last]
