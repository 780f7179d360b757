"""Shares of time that are best for something: programs over the time of each job, or pair of jobs, on each type of GPU.

What Gavel's policies share (Narayanan et al., OSDI 2020): a share is 0 at least; the GPUs that a type gives away are no more
than it has; a job has no more than all its time.

Optima are often not unique: jobs other than the worst are free within bounds.  An interior-point method ends in the middle of
these, and to the last digit by the order of variables and bounds, which is Gavel's here: variables come type by type.
"""

from __future__ import annotations

from itertools import combinations

import numpy as np

from gpusim.policies.clusters import F64, I64, Shares, ShareTable, ShareView, Together
from gpusim.policies.cones import ConeProgram


class ShareProgram:
    """Jobs of a view in rows, alone or also in pairs of equal size.

    jobs, kinds  in order; gpus: of each type
    wants, left, weights  of each job: GPUs, steps
    rates        steps/s of each job alone on each type; all_rates: and then of each job in each of its pairs
    first        variables before the shares; the share of a row on a type is variable `first + type * rows + row`
    """

    def __init__(self, view: ShareView, pairs: bool = False, first: int = 1) -> None:
        self.view, self.jobs, self.kinds, self.first = view, list(view.jobs), list(view.gpus), first
        self.gpus: F64 = np.array(list(view.gpus.values()), np.float64)
        self.wants, self.weights, self.left, self.rates = view.numbers()
        self.rows: list[Together] = [(job,) for job in self.jobs]
        many = len(self.jobs)
        self._member: I64 = np.arange(many)  # place in `jobs`, and row, of all that belong together
        self._row: I64 = np.arange(many)
        self.all_rates = self.rates
        if pairs:
            self._pair()

    def _pair(self) -> None:
        both = [(a, b) for a, b in combinations(range(len(self.jobs)), 2) if self.wants[a] == self.wants[b]]
        if not both:
            return
        first = len(self.rows)
        self.rows += [(self.jobs[a], self.jobs[b]) for a, b in both]
        rates = np.array([[self.view.pair(row[0], row[1], kind) for kind in self.kinds] for row in self.rows[first:]])
        at = np.arange(first, len(self.rows))
        one, two = np.array(both).T
        self._member = np.concatenate([self._member, one, two])
        self._row = np.concatenate([self._row, at, at])
        all_rates = np.concatenate([self.all_rates, rates[:, :, 0], rates[:, :, 1]])
        self.all_rates = all_rates.astype(np.float32).astype(np.float64)  # as Gavel's, to the same last digit

    @property
    def last(self) -> int:
        """The variable after the shares."""
        return self.first + len(self.rows) * len(self.kinds)

    def fair(self, program: ConeProgram) -> None:
        """Bounds that hold for all shares."""
        rows, kinds = len(self.rows), len(self.kinds)
        shares = np.arange(rows * kinds)
        program.below(shares, self.first + shares, np.full(len(shares), -1.0), np.zeros(len(shares)))
        wants = np.empty(rows)
        wants[self._row] = self.wants[self._member]
        program.below(shares // rows, self.first + shares, np.tile(wants, kinds), self.gpus)
        jobs, at, _ = self.speeds(self.all_rates)
        program.below(jobs, at, np.ones(len(at)), np.ones(len(self.jobs)))

    def speeds(self, values: F64) -> tuple[I64, I64, F64]:
        """(job, variable, value) of the sum over a job's shares; values: of each job alone and in its pairs, by type."""
        kinds = len(self.kinds)
        at = self.first + np.arange(kinds) * len(self.rows) + self._row[:, None]
        return np.repeat(self._member, kinds), at.ravel(), values.ravel()

    def times(self, values: F64, factors: F64) -> F64:
        """Such values times a factor of each job."""
        found: F64 = values * factors[self._member, None]
        return found

    def over(self, values: F64, factors: F64) -> F64:
        """Such values over a factor of each job."""
        found: F64 = values / factors[self._member, None]
        return found

    def weighted(self) -> F64:
        """Steps/s of each job alone and in pairs over its weight, in single precision as Gavel's."""
        return self.over(self.all_rates, self.weights).astype(np.float32).astype(np.float64)

    def alike(self) -> F64:
        """Steps/s of each job alone, as if every type were the one on which the jobs are fastest in sum."""
        return np.repeat(self.rates[:, [int(np.argmax(self.rates.sum(axis=0)))]], len(self.kinds), axis=1)

    def answer(self, found: F64) -> Shares:
        """The variables as shares, from 0 to 1."""
        cut = np.clip(found[self.first : self.last], 0.0, 1.0).reshape(len(self.kinds), len(self.rows))
        return ShareTable(self.rows, self.kinds, cut.T)

    def largest_least(self, values: F64) -> F64:
        """Shares with which the smallest of all jobs' sums of values is largest; the first variable is that, negated."""
        program = ConeProgram(self.last)
        jobs, at, values = self.speeds(values)
        every = np.arange(len(self.jobs))
        program.below(
            np.concatenate([every, jobs]), np.concatenate([np.zeros(len(every), np.int64), at]),
            np.concatenate([np.full(len(every), -1.0), -values]), np.zeros(len(every)),
        )  # fmt: skip
        self.fair(program)
        cost = np.zeros(self.last)
        cost[0] = 1.0
        found = program.solve(cost)
        assert found is not None  # no share at all keeps the bounds
        return found
