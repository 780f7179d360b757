"""A long short-term memory (Hochreiter and Schmidhuber, Neural Computation 9(8), 1997), as a learned policy evaluates it."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from gpusim.policies.compiled import F64, helper


class LstmNetwork(NamedTuple):
    """S trainings of one cell with H units and one input; gates in the order input, forget, candidate, output."""

    seen: F64    # (S, 4 H) of the input
    kept: F64    # (S, 4 H, H) of the units before
    shift: F64   # (S, 4 H)
    second: F64  # (S, H) of the answer
    last: F64    # (S,)


@helper
def logistic(x: float) -> float:
    """1 / (1 + exp(-x))"""
    return 0.5 + 0.5 * math.tanh(0.5 * x)


@helper
def remember(network: Any, seed: int, x: float, state: Any) -> float:
    """What the training of this seed answers once it has seen the input.

    state  units, cells, and room for 4 gates of each: 6 H words
    """
    units = network.second.shape[1]
    for k in range(4 * units):
        sum_ = network.shift[seed, k] + network.seen[seed, k] * x
        for j in range(units):
            sum_ += network.kept[seed, k, j] * state[j]
        state[2 * units + k] = sum_
    found = network.last[seed]
    for j in range(units):
        gate = 2 * units + j
        cell = logistic(state[gate + units]) * state[units + j] + logistic(state[gate]) * math.tanh(state[gate + 2 * units])
        state[units + j] = cell
        state[j] = logistic(state[gate + 3 * units]) * math.tanh(cell)
        found += network.second[seed, j] * state[j]
    return float(found)
