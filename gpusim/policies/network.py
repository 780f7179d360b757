"""A network of one hidden layer, as learned policies evaluate it: weights by seed, sums in the order of the inputs."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from gpusim.policies.compiled import F64, helper


class DenseNetwork(NamedTuple):
    """S trainings with H hidden units each, of N inputs."""

    first: F64   # (S, H, N)
    shift: F64   # (S, H)
    second: F64  # (S, H)
    last: F64    # (S,)


@helper
def answer(network: Any, seed: int, inputs: Any) -> float:
    """What the training of this seed answers to the first N inputs."""
    found = network.last[seed]
    for j in range(network.first.shape[1]):
        sum_ = network.shift[seed, j]
        for i in range(network.first.shape[2]):
            sum_ += network.first[seed, j, i] * inputs[i]
        found += network.second[seed, j] * math.tanh(sum_)
    return float(found)
