"""Train `imitation`: which of a list of tensors would Belady evict?

    python -m benchmarks.learning.imitate                # all seeds, a minute each; writes the weights that ship
    python -m benchmarks.learning.imitate --seed 0 --quick

Programs run in `gpusim.environment`.  Candidates are drawn at random, and the truth is the one whose next use is furthest.  In
the first round Belady itself decides, in later ones what has been learned so far (S. Ross, G. Gordon, D. Bagnell, "A reduction
of imitation learning and structured prediction to no-regret online learning", AISTATS 2011), so that the training sees the
memory that the policy will find.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import gpusim
from benchmarks.learning import fitting, training, writing
from benchmarks.learning.places import MACHINE, TRAINED_ON, places
from gpusim.policies.evict.parts.log_facts import NAMES, log_facts

FACTS = ("size", "last_use", "uses", "arrived", "born", "stage", "dirty", "next_use")
CANDIDATES, HIDDEN, ROUNDS, KEPT, STEPS, RATE = 16, 8, 3, 400, 4000, 0.02
log_of = getattr(log_facts, "py_func", log_facts)


def seen(observed: Any) -> tuple[Any, Any]:
    """(inputs (C, N), next uses (C,)) of the candidates at one decision."""
    now, of = observed[0], observed[1:].reshape(CANDIDATES, len(FACTS))
    size, last_use, uses, arrived, born, stage, dirty, next_use = of.T
    return np.stack(log_of(size, last_use, uses, arrived, born, np.full(CANDIDATES, now), stage, dirty), 1), next_use


def watched(env: Any, rng: np.random.Generator, weights: list[Any]) -> list[tuple[Any, Any]]:
    """Decisions of one run, KEPT of them, in which these weights choose, or Belady where there are none."""
    observed, _ = env.reset(seed=int(rng.integers(1 << 30)))
    rows, ended = [], False
    while not ended:
        x, next_use = seen(observed)
        rows.append((x, next_use))
        wanted = fitting.forward(weights, x)[0] if weights else next_use
        observed, _, ended, _, _ = env.step(int(np.argmax(wanted)))
    return [rows[i] for i in rng.permutation(len(rows))[:KEPT]]


def train(seed: int, quick: bool = False) -> list[Any]:
    """The weights of one seed."""
    rng = np.random.default_rng(seed)
    where = list(places(TRAINED_ON))[: 1 if quick else None]
    envs = [
        gpusim.environment(
            program, on=MACHINE, memory=memory, evict="random", observe=("now", *FACTS), candidates=CANDIDATES
        )
        for program, memory in where
    ]  # fmt: skip
    rows: list[tuple[Any, Any]] = []
    weights: list[Any] = []
    for number in range(2 if quick else ROUNDS):
        for env in envs:
            rows += watched(env, rng, weights)
        x = np.stack([row[0] for row in rows])
        last = np.stack([row[1] for row in rows])
        truth = (last == last.max(1, keepdims=True)).astype(float)
        truth /= truth.sum(1, keepdims=True)
        flat = x.reshape(-1, len(NAMES))
        mean, spread = flat.mean(0), flat.std(0) + 1e-9

        def slope(answers: Any, at: Any, truth: Any = truth) -> Any:  # of the cross entropy over the candidates
            share = np.exp(answers - answers.max(1, keepdims=True))
            return (share / share.sum(1, keepdims=True) - truth[at]) / len(at)

        fitted = fitting.fit(
            rng, fitting.begin(rng, len(NAMES), HIDDEN), (x - mean) / spread, slope, 50 if quick else STEPS,
            rate=RATE,
        )
        weights = fitting.unscaled(fitted, mean, spread)
        right = (truth[np.arange(len(x)), np.argmax(fitting.forward(weights, x)[0], 1)] > 0).mean()
        print(f"seed {seed}, round {number}: {len(rows)} decisions, {right:.1%} as Belady")
    return weights


def main() -> None:
    training.run(
        __file__, __doc__, "imitation", train,
        lambda said, found: writing.network("evict/parts/imitation_weights.py", said, found),
    )  # fmt: skip


if __name__ == "__main__":
    main()
