"""What the scripts that train are called with: one seed to look at, or all, which are kept."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.learning.places import SEEDS, TRAINED_ON
from benchmarks.learning.writing import rounded


def run(
    file: str, doc: str | None, policy: str, train: Callable[[int, bool], Any], keep: Callable[[str, list[Any]], None]
) -> None:  # fmt: skip
    """Train and keep the weights of every seed, or print those of the seed that is asked for.

    train  (seed, quick) -> weights, a list of arrays
    keep   (what is said of them, the weights of each seed)
    """
    parser = argparse.ArgumentParser(description=doc)
    parser.add_argument("--seed", type=int, default=None, help="only this one, and write nothing")
    parser.add_argument("--quick", action="store_true", help="a small budget, for a test")
    asked = parser.parse_args()
    if asked.seed is not None:
        print(rounded(train(asked.seed, asked.quick)))
        return
    said = f"Weights of `{policy}`, trained on {', '.join(TRAINED_ON)} by {Path(file).name}, seeds 0 to {SEEDS - 1}."
    keep(said, [train(seed, False) for seed in range(SEEDS)])
