"""Train `perceptron`: how much do the next requests add, after the latest ones?

    python -m benchmarks.learning.foretell               # all seeds; writes the weights that ship
    python -m benchmarks.learning.foretell --seed 0 --quick

benchmarks/learning/judge.py compares its errors with those of other predictors.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import gpusim
from benchmarks.learning import fitting, training, writing
from benchmarks.learning.places import TRAINED_ON
from gpusim.policies import registry
from gpusim.policies.release.perceptron import AHEAD, SEEN
from gpusim.trace.trace import ALLOC, FREE

HIDDEN, STEPS = 8, 3000
RIVALS = ("moving_average", "markov", "finite_context")


def growths(program: str) -> Any:
    """Bytes by which memory grew from one request of the program to the next."""
    trace: Any = gpusim.load_trace(program)
    size = -(-trace.size // 512) * 512
    kinds, of = trace.kind, trace.arg
    change = np.where(kinds == ALLOC, size[of % len(size)], np.where(kinds == FREE, -size[of % len(size)], 0))
    return np.diff(np.cumsum(change)[kinds == ALLOC])


def coming(growth: Any) -> Any:
    """(N,) the most that the next AHEAD requests add together, after each."""
    padded = np.concatenate([growth, np.zeros(AHEAD, growth.dtype)])
    ahead = np.cumsum(np.lib.stride_tricks.sliding_window_view(padded[1:], AHEAD), 1).max(1)
    return np.maximum(ahead, 0)[: len(growth)]


def rows(program: str) -> tuple[Any, Any]:
    """(inputs (N, SEEN), truth (N,)) as multiples of the mean size of growths so far."""
    growth = growths(program)
    mean = np.cumsum(np.abs(growth)) / np.arange(1, len(growth) + 1)
    latest = np.lib.stride_tricks.sliding_window_view(growth, SEEN)[:, ::-1] / mean[SEEN - 1 :, None]
    return np.arcsinh(latest), coming(growth)[SEEN - 1 :] / mean[SEEN - 1 :]


def train(seed: int, quick: bool = False) -> list[Any]:
    """The weights of one seed."""
    rng = np.random.default_rng(seed)
    found = [rows(program) for program in TRAINED_ON[: 1 if quick else None]]
    x, truth = np.concatenate([one[0] for one in found]), np.concatenate([one[1] for one in found])

    def slope(answers: Any, at: Any) -> Any:  # of the absolute error
        return np.sign(answers - truth[at]) / len(at)

    return fitting.fit(rng, fitting.begin(rng, SEEN, HIDDEN), x, slope, 50 if quick else STEPS)


class Told:
    """A release policy that is told of a program's requests with memory for all: what it expects is what it wants to leave."""

    def __init__(self, spec: str, growth: Any) -> None:
        self.policy = registry.get("release", spec)
        self.growth = growth

    def expected(self) -> Any:
        """(N,) bytes, before each request from the second on."""
        allocated = 0
        answers, capacity = [], 1 << 50
        tables: Any = self.policy.state(capacity, self.policy.params)
        for growth in (0, *self.growth.tolist()):
            allocated += growth
            # As many bytes allocated as there are: all that is expected is lacking, and nothing leaves that was not counted.
            full = capacity // 2 + allocated
            tables[0][1], tables[0][2] = full - growth, 0
            answers.append(int(self.policy.release(*tables, self.policy.params, full, full, full, abs(growth), 0.0)))
        return np.array(answers[1:])


def error(spec: str, program: str) -> float:
    """Mean absolute error of what is expected over the mean of what comes."""
    growth = growths(program)
    truth, said = coming(growth), Told(spec, growth).expected()
    return float(np.abs(said - truth).mean() / truth.mean())


def main() -> None:
    training.run(
        __file__, __doc__, "perceptron", train,
        lambda said, found: writing.network("release/parts/perceptron_weights.py", said, found),
    )  # fmt: skip


if __name__ == "__main__":
    main()
