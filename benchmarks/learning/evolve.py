"""Train `evolved`: weights of named facts under which runs take least time.

    python -m benchmarks.learning.evolve                 # all seeds, a minute each; writes the weights that ship
    python -m benchmarks.learning.evolve --seed 0 --quick

The cross-entropy method (R. Rubinstein, Methodology and Computing in Applied Probability 1, 1999): weights are drawn around a
mean, which moves to the best of them.  It begins at LRU.  What counts is the geometric mean of the times over those of LRU.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import gpusim
from benchmarks.learning import training, writing
from benchmarks.learning.places import MACHINE, TRAINED_ON, places
from gpusim import policy
from gpusim.engine.run.simulate import simulate
from gpusim.experiment.execute import RunProgram
from gpusim.machine import sharing
from gpusim.policies.evict.parts.log_facts import NAMES, log_facts

DRAWN, BEST, ROUNDS, SPREAD = 24, 6, 6, 0.5
LRU = np.array([-1.0 if name == "age" else 0.0 for name in NAMES])


@policy.evict
def weighted(size, last_use, uses, arrived, born, now, stage, dirty,
             w0=0.0, w1=0.0, w2=0.0, w3=0.0, w4=0.0, w5=0.0, w6=0.0, w7=0.0, w8=0.0, w9=0.0):  # fmt: skip
    """A sum of facts in logarithms."""
    x = log_facts(size, last_use, uses, arrived, born, now, stage, dirty)
    return (w0 * x[0] + w1 * x[1] + w2 * x[2] + w3 * x[3] + w4 * x[4] + w5 * x[5] + w6 * x[6] + w7 * x[7] + w8 * x[8]
            + w9 * x[9])  # fmt: skip


class Place:
    """A program and a memory, and what LRU takes there."""

    def __init__(self, program: str, memory: str) -> None:
        self.profile = gpusim.load_machine(MACHINE)
        trace: Any = gpusim.load_trace(program)
        self.work: Any = RunProgram(trace, self.profile, None, sharing.parse(sharing.WORDS)).work
        self.capacity = int(float(memory.removesuffix(" %")) / 100 * self.work.live_peak)
        self.lru = self.time("lru")

    def time(self, evict: str) -> float:
        """ns; infinite where it does not finish."""
        done = simulate(
            self.work.trace, self.profile, work=self.work, capacity_bytes=self.capacity, evict=evict, use=[weighted]
        )
        return float(done.metrics["makespan_ns"]) if done.finished else np.inf


def spec(weights: Any) -> str:
    """The policy with these weights."""
    return f"weighted({', '.join(f'w{i}={w:.6g}' for i, w in enumerate(weights))})"


def train(seed: int, quick: bool = False) -> Any:
    """The weights of one seed."""
    rng = np.random.default_rng(seed)
    there = [Place(*each) for each in list(places(TRAINED_ON))[: 1 if quick else None]]
    mean, spread = LRU.copy(), np.full(len(NAMES), SPREAD)
    best, best_value = mean, 0.0
    for number in range(2 if quick else ROUNDS):
        drawn = mean + spread * rng.normal(size=(4 if quick else DRAWN, len(NAMES)))
        drawn = np.vectorize(lambda x: float(f"{x:.6g}"))(drawn)
        value = np.array([np.mean([np.log(place.time(spec(w)) / place.lru) for place in there]) for w in drawn])
        order = np.argsort(value, kind="stable")[:BEST]
        if value[order[0]] < best_value:
            best, best_value = drawn[order[0]], value[order[0]]
        mean, spread = drawn[order].mean(0), drawn[order].std(0) + 0.02
        print(f"seed {seed}, round {number}: {np.exp(best_value):.3f} of LRU's time", flush=True)
    return best


def main() -> None:
    training.run(
        __file__, __doc__, "evolved", lambda seed, quick: [train(seed, quick)],
        lambda said, found: writing.table("evict/parts/evolved_weights.py", said, np.concatenate(found)),
    )  # fmt: skip


if __name__ == "__main__":
    main()
