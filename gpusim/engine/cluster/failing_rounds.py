"""A cluster in rounds whose nodes and jobs fail.

A job saves at the end of each round, at no cost, as it is stopped there: a failure takes the steps of the round from all that
ran on what failed, and they keep their GPUs to its end.  The next round is given on the nodes that are there.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from gpusim.base.errors import GpusimError
from gpusim.engine.cluster.breakdowns import NodeBreakdown
from gpusim.engine.cluster.failing import FailingCluster
from gpusim.engine.cluster.failure_book import LOST, NOTICING
from gpusim.engine.cluster.outcome import ClusterOutcome
from gpusim.engine.cluster.rounds import RoundRun, RunningRow
from gpusim.policies.clusters import ArrivingJob, ClusterSpec, JobRates

GONE = -1  # the type of GPUs that a row cannot keep
MOST = 1000  # rounds that failures take from a job, one after the other


class FailingRoundRun(RoundRun):
    """As `RoundRun`, with failures."""

    def __init__(
        self, jobs: Sequence[ArrivingJob], cluster: ClusterSpec, rates: JobRates, scheduler: Any, failing: FailingCluster,
        **more: Any,
    ) -> None:  # fmt: skip
        super().__init__(jobs, cluster, rates, scheduler, **more)
        self.failing = failing
        self.broken, self.book = failing.begun(cluster, self.now)
        self.begun = self.now  # the round
        self.node_of = [node for node, each in enumerate(cluster.nodes) for _ in range(each.gpus)]
        self.away: frozenset[int] = frozenset()
        self.lost = [0] * len(self.jobs)  # rounds in a row

    def _jump(self, upcoming: float | None) -> None:
        if self.table.course["active"] and not self.table.course["held"] and self.broken.at < math.inf:
            upcoming = self.broken.at if upcoming is None else min(upcoming, self.broken.at)
        super()._jump(upcoming)

    def _end_round(self) -> None:
        """What failed during the round, and what ran there."""
        running, first = self.running(), dict[int, float]()  # row -> when
        while self.broken.at <= self.now:
            at = self.broken.at
            for each in self.broken.happen():
                if each.kind < 0:
                    self.book.back(at, each.node)
                    continue
                if self.failing.kinds[each.kind].leaves:
                    self.book.breaks(at, each.node, each.kind)
                for number, row in enumerate(running):
                    if at < row.end and self._strikes(each, row):
                        first.setdefault(number, at)
        for number, row in enumerate(running):
            dies = self.begun + min(self.book.strikes_after(job) for job in row.jobs)
            if dies < min(first.get(number, math.inf), row.end):
                first[number] = dies
            until = first.get(number, row.end)
            for job in row.jobs:
                self.book.ran(job, until - self.begun)
                self.lost[job] = self.lost[job] + 1 if number in first else 0
                if self.lost[job] > MOST:
                    name = self.jobs[job].name or f"job {job}"
                    said = f"{name} loses {MOST:,} rounds one after the other to failures"
                    raise GpusimError(said, self.jobs[job].where, "shorter rounds (--round), or fewer failures")
            if number in first:
                self._lose(number, row, until)
        super()._end_round()

    def _strikes(self, what: NodeBreakdown, row: RunningRow) -> bool:
        return what.gpu in row.gpus if what.gpu >= 0 else any(self.node_of[gpu] == what.node for gpu in row.gpus)

    def _lose(self, number: int, row: RunningRow, at: float) -> None:
        """The row had its GPUs for nothing."""
        tables, many, took = self.table.tables, len(row.gpus), row.end - self.begun
        self.book.spent[LOST] += (at - self.begun) * many
        self.book.spent[NOTICING] += (row.end - at) * many
        for job in row.jobs:
            self.book.struck(job, at)
        held = tables.held[number]
        held["struck"] = 1
        tables.worked[list(row.gpus)] += took
        tables.had[held["row"], row.kind] += took
        tables.total[row.kind] += took
        self.table.course["done"] += 1

    def _begin_round(self) -> None:
        """On the nodes that are there."""
        self.begun = self.now
        away = frozenset(gpu for gpu, node in enumerate(self.node_of) if node in self.book.away)
        if away != self.away:
            self.away, self.counts = away, self.table.pool(away)
            self.table.course["changed"] = 1
            for number, row in enumerate(self.running()):
                if not away.isdisjoint(row.gpus):
                    self.table.tables.held[number]["kind"] = GONE
        super()._begin_round()

    def _share(self) -> None:
        """Not while all GPUs of a type are away: the shares of before stay."""
        if all(self.counts):
            super()._share()

    def _note(self) -> None:
        super()._note()
        self.book.note()

    def outcome(self) -> ClusterOutcome:
        return replace(super().outcome(), failed=self.book.outcome(self.now))
