"""The job that has least of its fair speed has as much as can be."""

from __future__ import annotations

import numpy as np

from gpusim.policies.clusters import Shares, ShareView
from gpusim.policies.share_programs import ShareProgram


class LeastSpeedMost:
    """Speeds over those with an equal part of the cluster.

    blind  a second counts the same on each type of GPU, even where the job cannot run
    pairs  two jobs may share GPUs
    """

    leftovers = True

    def __init__(self, blind: bool = False, pairs: bool = False) -> None:
        self.blind = self.shuffles = blind
        self.packs = pairs

    def shares(self, view: ShareView) -> Shares:
        """A program over all jobs that are there."""
        program = ShareProgram(view, self.packs)
        rates = np.ones_like(program.rates) if self.blind else program.rates
        parts = program.gpus / len(program.jobs)
        equal = (rates * (parts / parts.sum())).sum(axis=1)
        if self.packs:
            speeds = program.over(program.times(program.weighted(), program.wants), equal)
        else:
            speeds = program.times(program.times(rates, 1.0 / program.weights * (1.0 / equal)), program.wants)
        return program.answer(program.largest_least(speeds))


def max_min_fairness_perf() -> LeastSpeedMost:
    """The smallest speed of a job, over its speed with an equal part of each type of GPU, is made as large as it can be.

    Speeds count times the GPUs that a job wants, over its weight.

    Source: Gavel's heterogeneity-aware least attained service (Narayanan et al., OSDI 2020).
    """
    return LeastSpeedMost()
