"""All jobs together do as many steps as can be."""

from __future__ import annotations

import numpy as np

from gpusim.policies.clusters import Shares, ShareView
from gpusim.policies.cones import ConeProgram
from gpusim.policies.share_programs import ShareProgram


class MostSteps:
    """A step of each job counts the same."""

    packs, shuffles, leftovers = False, False, True

    def shares(self, view: ShareView) -> Shares:
        """A program over all jobs that are there."""
        program = ShareProgram(view, first=0)
        made = ConeProgram(program.last)
        program.fair(made)
        _, at, values = program.speeds(program.rates)
        cost = np.zeros(program.last)
        cost[at] = -values
        found = made.solve(cost)
        assert found is not None  # no share at all keeps the bounds
        return program.answer(found)


def max_sum_throughput_perf() -> MostSteps:
    """The sum of all jobs' steps a second is made as large as it can be; slow jobs may have no share.

    Source: Gavel's throughput policy (Narayanan et al., OSDI 2020).
    """
    return MostSteps()
