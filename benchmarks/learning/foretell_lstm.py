"""Train `lstm`: how much do the next requests add, after all so far?

    python -m benchmarks.learning.foretell_lstm          # all seeds; writes the weights that ship
    python -m benchmarks.learning.foretell_lstm --seed 0 --quick

What comes and how errors are counted are foretell.py's.  Pieces of the programs are drawn; errors flow back through all of a
piece, and its first requests only set the memory.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.learning import foretell, training, writing
from benchmarks.learning.places import TRAINED_ON
from gpusim.policies.release.lstm import SEEN, UNITS

LENGTH, STEPS, BATCH, RATE = 64, 2000, 64, 0.01
Weights = list[Any]  # seen (4H,), kept (4H, H), shift (4H,), second (H,), last ()


def series(program: str) -> tuple[Any, Any]:
    """(inputs (N,), truth (N,)): growths, and what comes, as multiples of the mean size of growths so far."""
    growth = foretell.growths(program)
    sizes = np.cumsum(np.abs(growth))
    mean = np.maximum(sizes, 1) / np.arange(1, len(growth) + 1)
    return np.arcsinh(growth / mean), foretell.coming(growth) / mean


def begin(rng: np.random.Generator) -> Weights:
    """Weights before the first step; the memory keeps what it has at first."""
    shift = np.zeros(4 * UNITS)
    shift[UNITS : 2 * UNITS] = 1.0
    by = 1.0 / np.sqrt(UNITS)
    return [rng.normal(0, 1, 4 * UNITS), rng.normal(0, by, (4 * UNITS, UNITS)), shift, rng.normal(0, by, UNITS), np.zeros(())]


def forward(weights: Weights, x: Any) -> tuple[Any, list[tuple[Any, ...]]]:
    """(answers (B, T), what each step has computed) for inputs (B, T)."""
    seen, kept, shift, second, last = weights
    unit, cell = np.zeros((len(x), UNITS)), np.zeros((len(x), UNITS))
    answers, steps = np.empty(x.shape), []
    for t in range(x.shape[1]):
        z = x[:, t, None] * seen + unit @ kept.T + shift
        gates = 0.5 + 0.5 * np.tanh(0.5 * z)
        into, keep, _, out = np.split(gates, 4, 1)
        candidate = np.tanh(z[:, 2 * UNITS : 3 * UNITS])
        new = keep * cell + into * candidate
        steps.append((unit, cell, into, keep, candidate, out, np.tanh(new)))
        cell, unit = new, out * np.tanh(new)
        answers[:, t] = unit @ second + last
    return answers, steps


def backward(weights: Weights, x: Any, steps: list[tuple[Any, ...]], slope: Any) -> Weights:
    """The gradient of the weights; slope: that of each answer."""
    _, kept, _, second, _ = weights
    found = [np.zeros_like(w) for w in weights]
    of_unit, of_cell = np.zeros((len(x), UNITS)), np.zeros((len(x), UNITS))
    for t in range(x.shape[1] - 1, -1, -1):
        before, cell, into, keep, candidate, out, level = steps[t]
        found[3] += slope[:, t] @ (out * level)
        of_unit = of_unit + slope[:, t, None] * second
        of_cell = of_cell + of_unit * out * (1 - level**2)
        z = np.concatenate([
            of_cell * candidate * into * (1 - into), of_cell * cell * keep * (1 - keep), of_cell * into * (1 - candidate**2),
            of_unit * level * out * (1 - out),
        ], 1)  # fmt: skip
        found[0] += x[:, t] @ z
        found[1] += z.T @ before
        found[2] += z.sum(0)
        of_unit, of_cell = z @ kept, of_cell * keep
    found[4] = slope.sum()
    return found


def train(seed: int, quick: bool = False) -> Weights:
    """The weights of one seed, by Adam (Kingma and Ba, ICLR 2015) on the absolute error; slopes above 1 are cut to 1."""
    rng = np.random.default_rng(seed)
    programs = [series(program) for program in TRAINED_ON[: 1 if quick else None]]
    weights, steps = begin(rng), 20 if quick else STEPS
    mean, square = [np.zeros_like(w) for w in weights], [np.zeros_like(w) for w in weights]
    for step in range(1, steps + 1):
        drawn = [(programs[k], rng.random()) for k in rng.integers(len(programs), size=BATCH)]
        places = [(x, truth, int(share * (len(x) - LENGTH))) for (x, truth), share in drawn]
        x = np.stack([x[at : at + LENGTH] for x, _, at in places])
        truth = np.stack([truth[at : at + LENGTH] for _, truth, at in places])
        answers, computed = forward(weights, x)
        slope = np.sign(answers - truth) / slope_of(truth)
        slope[:, :SEEN] = 0.0
        for k, g in enumerate(backward(weights, x, computed, slope)):
            g = g / max(1.0, float(np.abs(g).max()))
            mean[k] = 0.9 * mean[k] + 0.1 * g
            square[k] = 0.999 * square[k] + 0.001 * g * g
            by = RATE * (1.0 - step / (steps + 1)) * mean[k] / (1 - 0.9**step)
            weights[k] = weights[k] - by / (np.sqrt(square[k] / (1 - 0.999**step)) + 1e-8)
    return weights


def slope_of(truth: Any) -> int:
    """Answers of a batch that count."""
    return truth.shape[0] * (truth.shape[1] - SEEN)


def main() -> None:
    names = ("seen", "kept", "shift", "second", "last")
    training.run(__file__, __doc__, "lstm", train, lambda said, found: writing.networks(
        "release/parts/lstm_weights.py", said, "recurrent", "LstmNetwork", names, found))  # fmt: skip


if __name__ == "__main__":
    main()
