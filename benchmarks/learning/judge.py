"""Judge the learned policies on programs that nothing was learned from, and write the tables of docs/learned.md.

    python -m benchmarks.learning.judge [FOLDER]     some minutes; FOLDER keeps the runs (default: results)

Intervals are of the mean over five trainings (of `bandit`: five draws), 95 %, by Student's t with 4 degrees of freedom.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import gpusim
from benchmarks.learning import foretell, prior
from benchmarks.learning.places import JUDGED_ON, SEEDS, TRAINED_ON, places
from gpusim.engine.control import controller
from gpusim.engine.control.arms import ARMS
from gpusim.engine.control.controller import Round

PAGE = Path(__file__).parents[2] / "docs" / "learned.md"
T4 = 2.776  # Student's t, 97.5 %, 4 degrees of freedom
ROUNDS = 40
EVICT = ("lru", "cost_aware", "sieve", "imitation", "evolved", "belady")
RELEASE = ("none", "watermark", "moving_average", "markov", "finite_context", "perceptron", "lstm")
TRAINED = ("imitation", "evolved", "perceptron", "lstm")
FORETELL = ("perceptron", "lstm")


def with_interval(values: Sequence[float]) -> str:
    """The mean, and the half width of its interval."""
    half = T4 * float(np.std(values, ddof=1)) / math.sqrt(len(values))
    return f"{np.mean(values):.2f} ± {half:.2f}"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(head) + " |", "| --- |" + " ---: |" * (len(head) - 1)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


def seeds_of(name: str) -> list[str]:
    """The policy, or its five trainings."""
    return [name] + [f"{name}(seed={seed})" for seed in range(1, SEEDS)] if name in TRAINED else [name]


def of_experiment(name: str, kind: str, policies: Sequence[str], folder: Path) -> str:
    """Slowdowns of a shipped experiment, a row for each program and memory, and how each fares against the first policy."""
    found: dict[tuple[str, str, str], float] = {}
    for result in gpusim.run(name, folder=folder / name).values:
        where = (result.spec["trace"], f"{100 * result.spec['memory_share']:.0f} %", result.spec.get(kind, "none"))
        found[where] = float(result.metrics["slowdown"])
    rows, ratios = [], {policy: [] for policy in policies}
    for program, memory in places(JUDGED_ON):
        cells = []
        for policy in policies:
            each = [found[program, memory, spec] for spec in seeds_of(policy)]
            cells.append(with_interval(each) if policy in TRAINED else f"{each[0]:.2f}")
            ratios[policy].append([x / found[program, memory, policies[0]] for x in each])
        rows.append([program, memory, *cells])
    means = []
    for policy in policies:
        each = np.exp(np.log(np.array(ratios[policy])).mean(0))
        means.append(with_interval(each.tolist()) if policy in TRAINED else f"{each[0]:.2f}")
    rows.append([f"all, over `{policies[0]}`", "", *means])
    return table(["program", "memory", *(f"`{policy}`" for policy in policies)], rows)


def played(spec: str, took: Any) -> Any:
    """ns of each round under this controller, when each choice takes these times."""
    control = controller.get(spec)
    choice, times = next(control), []
    for number in range(ROUNDS):
        time = took[ARMS.index(choice)]  # type: ignore[arg-type]
        times.append(time)
        choice = control.send(Round(number, 0, 1, 1, "finished" if np.isfinite(time) else "oom", int(time), 0.0, 0))
    return np.array(times)


def of_bandit() -> str:
    """Times of trainings over those without release and prefetching, a row for each program and memory."""
    fixed = [arm.policies for arm in ARMS].index({"release": "watermark(low=0.05, high=0.1)", "prefetch": "next_k(k=4)"})
    usual = int(np.argmin(prior.learned([prior.times(*each) for each in places(TRAINED_ON)])[0]))
    rows, all_ = [], []
    for program, memory in places(JUDGED_ON):
        took = prior.times(program, memory)
        took = took / took[0] * 1e9
        row = [[took[fixed] / 1e9], [took[usual] / 1e9]]
        for learned in ("yes", "no"):
            row.append([played(f"bandit(seed={s}, learned={learned})", took).mean() / 1e9 for s in range(SEEDS)])
        row.append([played(f"bandit(seed={s})", took)[-10:].mean() / 1e9 for s in range(SEEDS)])
        row.append([took.min() / 1e9])
        all_.append(row)
        rows.append([program, memory, *(_cell(values) for values in row)])
    means = [np.exp(np.mean([np.log(row[k]) for row in all_], 0)).tolist() for k in range(len(all_[0]))]
    rows.append(["all", "", *(_cell(values) for values in means)])
    return table(
        ["program", "memory", "`watermark` and `next_k`", "best on the training programs", "`bandit`", "`bandit(learned=no)`",
         "`bandit`, last ten rounds", "best choice"], rows,
    )  # fmt: skip


def _cell(values: Sequence[float]) -> str:
    return with_interval(values) if len(values) > 1 else f"{values[0]:.2f}"


def errors() -> str:
    """Errors of what predictors of demand expect, a row for each program."""
    rows = []
    for program in (*TRAINED_ON, *JUDGED_ON):
        own = [with_interval([foretell.error(spec, program) for spec in seeds_of(name)]) for name in FORETELL]
        others = [f"{foretell.error(name, program):.2f}" for name in foretell.RIVALS]
        rows.append([program + (" (trained on)" if program in TRAINED_ON else ""), *others, *own])
    return table(["program", *(f"`{name}`" for name in (*foretell.RIVALS, *FORETELL))], rows)


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path("results")
    made = {
        "errors": errors(), "bandit": of_bandit(),
        "eviction": of_experiment("learned", "evict", EVICT, folder),
        "demand": of_experiment("learned_demand", "release", RELEASE, folder),
    }  # fmt: skip
    text = PAGE.read_text("utf-8")
    for name, found in made.items():
        before, _, rest = text.partition(f"<!-- begin: {name} -->\n")
        text = f"{before}<!-- begin: {name} -->\n{found}\n<!-- end: {name} -->{rest.partition(f'<!-- end: {name} -->')[2]}"
    PAGE.write_text(text, "utf-8")


if __name__ == "__main__":
    main()
