"""All jobs that are there end as early as can be."""

from __future__ import annotations

import numpy as np

from gpusim.policies.clusters import Shares, ShareView
from gpusim.policies.cones import ConeProgram
from gpusim.policies.share_programs import ShareProgram

LOW, HIGH, CLOSE = 100.0, 1e6, 1.05  # s, s, and how close halving goes


class EarliestEnd:
    """Looks for a time by halving, and takes shares with which every job ends within it.

    blind  every type of GPU counts as the fastest
    pairs  two jobs may share GPUs
    """

    leftovers = True

    def __init__(self, blind: bool = False, pairs: bool = False) -> None:
        self.blind = self.shuffles = blind
        self.packs = pairs

    def shares(self, view: ShareView) -> Shares:
        """A program for the shortest time, and one for the time that halving finds."""
        program = ShareProgram(view, self.packs)
        rates = program.alike() if self.blind else program.all_rates
        best = program.largest_least(program.times(rates, 1.0 / program.left))
        program.first = 0
        made = ConeProgram(program.last)
        program.fair(made)
        jobs, at, values = program.speeds(rates)
        made.below(jobs, at, -values, -program.left / halved(-1.0 / best[0]))
        found = made.solve(np.zeros(program.last))
        return program.answer(best[1:] if found is None else found)


def halved(shortest: float) -> float:
    """The last time that halving finds to be enough, where `shortest` is just enough."""
    low, high, last, enough = LOW, HIGH, HIGH, 0.0
    while not enough:
        while CLOSE * low < high:
            middle = (low + high) / 2.0
            if middle >= shortest:
                enough = high = middle
            else:
                low = middle
        low, high, last = last, last * 10.0, last * 10.0
    return enough


def min_total_duration_perf() -> EarliestEnd:
    """All jobs that are there end as early as can be, found by halving to 5 %.

    Source: Gavel's heterogeneity-aware makespan policy (Narayanan et al., OSDI 2020).
    """
    return EarliestEnd()
