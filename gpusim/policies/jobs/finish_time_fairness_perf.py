"""The job that will be late most, against having had its equal part, will be as little late as can be."""

from __future__ import annotations

import numpy as np

from gpusim.policies.clusters import F64, Shares, ShareView, Together
from gpusim.policies.cones import ConeProgram
from gpusim.policies.jobs.isolated import equal_parts
from gpusim.policies.share_programs import ShareProgram


class LeastLate:
    """Keeps for each job how long its steps so far would have taken with an equal part of the cluster.

    blind  every type of GPU counts as the fastest
    pairs  two jobs may share GPUs
    """

    leftovers = True

    def __init__(self, blind: bool = False, pairs: bool = False) -> None:
        self.blind = self.shuffles = blind
        self.packs = pairs
        self._had: dict[int, float] = {}
        self._before: dict[int, tuple[float, float]] = {}  # steps left, steps/s with an equal part

    def shares(self, view: ShareView) -> Shares:
        """A program over all jobs that are there."""
        program = ShareProgram(view, self.packs)
        rates = all_rates = program.rates
        if self.blind:
            rates = all_rates = program.alike()
        elif self.packs:
            all_rates = program.weighted()
        rows: list[Together] = [(job,) for job in view.jobs]
        equal = equal_parts(view, rows)
        parts = np.array([[equal[row][kind] for kind in program.kinds] for row in rows])
        alone = self._expected(program, (rates * parts).sum(axis=1))
        late = np.array([view.now - view.job(job).arrival for job in view.jobs])
        found = self._solved(program, all_rates, late, alone)
        return equal if found is None else program.answer(found)

    def _expected(self, program: ShareProgram, speeds: F64) -> F64:
        """s of each job's life with an equal part, from arrival to end."""
        found = []
        now = dict(zip(program.jobs, zip(program.left.tolist(), speeds.tolist(), strict=True), strict=True))
        for job, (left, speed) in now.items():
            if job in self._before:
                before, rate = self._before[job]
                self._had[job] = self._had.get(job, 0.0) + (before - left) / rate
            found.append(self._had.get(job, 0.0) + left / speed)
        self._before = now
        return np.array(found)

    def _solved(self, program: ShareProgram, rates: F64, late: F64, alone: F64) -> F64 | None:
        """The largest of (life so far + steps left / speed) / expected life is made as small as can be."""
        many = len(program.jobs)
        every = np.arange(many)
        cone = ConeProgram(program.last + many)
        cone.below(
            np.concatenate([every, every]), np.concatenate([np.zeros(many, np.int64), program.last + every]),
            np.concatenate([np.full(many, -1.0), program.left * (1.0 / alone)]), -late * (1.0 / alone),
        )  # fmt: skip
        program.fair(cone)
        cone.hyperbolas(program.last + every, *program.speeds(rates))
        cost = np.zeros(cone.many)
        cost[0] = 1.0
        return cone.solve(cost)


def finish_time_fairness_perf() -> LeastLate:
    """The largest ratio of a job's expected life to its life with an equal part of the cluster is made as small as can be.

    Source: Gavel's heterogeneity-aware form (Narayanan et al., OSDI 2020) of finish-time fairness (Mahajan et al., Themis,
    NSDI 2020).
    """
    return LeastLate()
