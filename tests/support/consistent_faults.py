"""All kinds of faults that can be planted in a result with its sums kept right.

    python tests/support/consistent_faults.py FIRST LAST          the faults of each kind in these random runs: how many the
    python tests/support/consistent_faults.py FIRST LAST shipped  referee refuses, how many it names; or in shipped experiments
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

import faults_in_content
import faults_in_time
import faults_of_other_runs  # the three modules enter their kinds
import numpy as np
from fault_tools import KINDS, Case, Fault
from faultless_runs import run, shipped

from gpusim.referee import check

__all__ = ["KINDS", "Score", "faults_in_content", "faults_in_time", "faults_of_other_runs", "plant", "sentences"]
OF_UNFINISHED = (
    "failure edited", "metric edited", "metric of free blocks edited", "stall of another cause", "timeline column scaled",
    "timeline row edited",
)  # fmt: skip
SHOWN = 5  # sentences of a run that `gpusim check` shows


@dataclass
class Score:
    """Of one kind: faults tried, those refused, those of which a sentence names something; of the others what was said."""

    tried: int = 0
    found: int = 0
    named: int = 0
    missed: list[str] = field(default_factory=list)


def plant(name: str, case: Case, seed: int) -> Fault | None:
    """A fault of this kind in the run; None where there is no place for one, as often where memory ran out."""
    if not case.result.finished and name not in OF_UNFINISHED:
        return None
    found = KINDS[name](case, np.random.default_rng([seed, *name.encode()]))
    return None if found is None else replace(found, kind=name)


def sentences(case: Case, fault: Fault | None = None) -> list[str]:
    """What the referee has to say of the run, or of the fault planted in it."""
    report = check((fault or case).result, case.source, case.profile, case.own)
    assert report.ok is not None
    return [str(violation) for violation in report.violations]


def score(cases: Iterable[tuple[int, Case]], kinds: Iterable[str]) -> tuple[dict[str, Score], list[str]]:
    """Of each kind what was found, and what was said of runs without a fault."""
    scores, alarms = {name: Score() for name in kinds}, []
    for seed, case in cases:
        if said := sentences(case):
            alarms.append(f"run {seed}: {said[0]}")
            continue
        for name, of in scores.items():
            if fault := plant(name, case, seed):
                said = sentences(case, fault)
                of.tried, of.found = of.tried + 1, of.found + bool(said)
                of.named += fault.named(said[:SHOWN])
                if not fault.named(said[:SHOWN]):
                    of.missed.append(f"{seed}: {said[0] if said else 'not found'} ({', '.join(sorted(fault.words))})")
    return scores, alarms


def main(first: int, last: int, make: Callable[[int], Case]) -> None:
    """Print the table."""
    cases = ((seed, make(seed)) for seed in range(first, last))
    scores, alarms = score(cases, list(KINDS))
    for name, of in scores.items():
        print(f"{name:36}{of.tried:6}{of.found:6}{of.named:6}  {'; '.join(of.missed[:2])[:400]}")
    print(f"{'all':36}" + "".join(f"{sum(getattr(s, of) for s in scores.values()):6}" for of in ("tried", "found", "named")))
    print(f"{len(alarms)} false alarms", *alarms, sep="\n")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), shipped if "shipped" in sys.argv else run)
