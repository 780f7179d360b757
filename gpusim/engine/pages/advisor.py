"""Which hints would help?  Candidates are simulated: each advice on one allocation alone, then more beside the best.

No rule of thumb says what is tried first or believed: what comes out is the fastest program of those that were run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import product
from typing import Any

from gpusim.engine.pages.advice import ADVICE, find
from gpusim.results.faults import FaultReport

UNTIMED = "populate"  # its copies are not in the time of the run: that would save what it only leaves out
WORDS = tuple(word for word, advice in ADVICE.items() if word not in ("none", UNTIMED) and advice.plan is None)
MOST = 40        # programs that a search simulates
WORST = 5        # allocations that it tries
LEAST = 0.01     # share of the makespan that a hint has to save
NOTICED = 0.005  # share of the makespan from which serving an allocation is worth a try

Simulate = Callable[[Sequence[str]], Sequence[float]]  # what is said -> makespans in ns, inf for a program that fails


@dataclass(frozen=True)
class Finding:
    """A hint and what it changes, beside those found before it."""

    allocation: str
    word: str
    before_ns: float
    after_ns: float

    @property
    def said(self) -> str:
        return f"{self.allocation}:{self.word}"

    @property
    def about(self) -> str:
        return find(self.word).about.partition(":")[0]


@dataclass(frozen=True)
class Advised:
    """What a search found.

    steps  hints that help together, in the order in which they were added; the first is the best of all
    alone  for each allocation that was tried the best hint on it alone, whether it helps or not
    tried  programs that were simulated
    """

    base_ns: float
    steps: list[Finding] = field(default_factory=list)
    alone: list[Finding] = field(default_factory=list)
    tried: int = 0

    @property
    def said(self) -> str:
        """The value of `driver(advice=...)` that says it all."""
        return " ".join(step.said for step in self.steps)

    def plain(self) -> dict[str, Any]:
        """As JSON values; what failed is null."""
        values = asdict(self) | {"said": self.said}
        for found in (*values["steps"], *values["alone"]):
            found["after_ns"] = found["after_ns"] if math.isfinite(found["after_ns"]) else None
        return values


def from_plain(values: Mapping[str, Any]) -> Advised:
    def findings(rows: Sequence[Mapping[str, Any]]) -> list[Finding]:
        return [Finding(**{**row, "after_ns": math.inf if row["after_ns"] is None else row["after_ns"]}) for row in rows]

    return Advised(values["base_ns"], findings(values["steps"]), findings(values["alone"]), values["tried"])


def candidates(report: FaultReport) -> list[str]:
    """The allocations that are worth a try: those that thrash most first, then by the time that they take."""
    cost = {a.name: a.service_ns + a.cpu_service_ns + (report.times["remote"] if a.remote else 0.0) for a in report.allocations}
    noticed = [a.name for a in report.allocations if a.thrashed or cost[a.name] >= NOTICED * report.makespan_ns]
    return noticed[:WORST]


def search(names: Sequence[str], simulate: Simulate, base_ns: float, most: int = MOST, beside: str = "") -> Advised:
    """Hints for these allocations that make the program faster, added one after the other as long as one helps.

    beside  what the program is told already
    """
    steps: list[Finding] = []
    alone: dict[tuple[str, str], float] = {}
    tried, now = 0, base_ns
    while tried < most:
        taken = {step.allocation for step in steps}
        options = [(name, word) for name, word in product(names, WORDS) if name not in taken]
        if steps:  # what helped alone comes first, and what has just helped another
            last = steps[-1].word
            options = [o for o in options if alone.get(o, math.inf) < base_ns or o[1] == last]
            options.sort(key=lambda o: alone.get(o, math.inf))
        options = options[: most - tried]
        if not options:
            break
        said = " ".join(filter(None, [beside, *(step.said for step in steps)]))
        took = simulate([f"{said} {name}:{word}".strip() for name, word in options])
        tried += len(options)
        if not steps:
            alone = dict(zip(options, took, strict=True))
        best = min(range(len(options)), key=lambda i: took[i])
        if not now - took[best] >= LEAST * now:
            break
        steps.append(Finding(*options[best], now, took[best]))
        now = took[best]
    return Advised(base_ns, steps, _alone(alone, base_ns), tried)


def _alone(found: dict[tuple[str, str], float], base_ns: float) -> list[Finding]:
    best: dict[str, Finding] = {}
    for (name, word), took in found.items():
        if name not in best or took < best[name].after_ns:
            best[name] = Finding(name, word, base_ns, took)
    return list(best.values())
