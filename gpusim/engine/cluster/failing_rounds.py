"""A cluster in rounds whose nodes and jobs fail.

A job saves at the end of each round, at no cost, as it is stopped there: a failure takes the steps of the round from all that
ran on what failed, and they keep their GPUs to its end.  The next round is given on the nodes that are there.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from gpusim.engine.cluster.breakdowns import Breakdown, Breakdowns
from gpusim.engine.cluster.failing import FailingCluster
from gpusim.engine.cluster.failure_book import LOST, NOTICING, FailureBook
from gpusim.engine.cluster.outcome import ClusterOutcome
from gpusim.engine.cluster.rounds import RoundRun, RunningRow
from gpusim.policies.clusters import ArrivingJob, ClusterSpec, JobRates


class FailingRoundRun(RoundRun):
    """As `RoundRun`, with failures."""

    def __init__(
        self, jobs: Sequence[ArrivingJob], cluster: ClusterSpec, rates: JobRates, scheduler: Any, failing: FailingCluster,
        **more: Any,
    ) -> None:  # fmt: skip
        super().__init__(jobs, cluster, rates, scheduler, **more)
        self.failing = failing
        self.broken = Breakdowns(
            cluster, failing.kinds, spares=failing.spares, seed=failing.seed, told=failing.told, begin=self.now
        )
        self.book = FailureBook(cluster, failing.kinds, failing.seed)
        self.all_servers = self.servers
        self.begun = self.now  # the round
        self.node_of = [node for node, each in enumerate(cluster.nodes) for _ in range(each.gpus)]

    def _jump(self, upcoming: float | None) -> None:
        if self.active and not self.running and self.broken.at < math.inf:
            upcoming = self.broken.at if upcoming is None else min(upcoming, self.broken.at)
        super()._jump(upcoming)

    def _end_round(self) -> None:
        """What failed during the round, and what ran there."""
        first: dict[int, float] = {}  # row -> when
        while self.broken.at <= self.now:
            at = self.broken.at
            for each in self.broken.happen():
                if each.kind < 0:
                    self.book.back(at, each.node)
                    continue
                if self.failing.kinds[each.kind].leaves:
                    self.book.breaks(at, each.node, each.kind)
                for number, row in enumerate(self.running):
                    if at < row.end and self._strikes(each, row):
                        first.setdefault(number, at)
        for number, row in enumerate(self.running):
            dies = self.begun + min(self.book.strikes_after(job) for job in row.jobs)
            if dies < min(first.get(number, math.inf), row.end):
                first[number] = dies
            until = first.get(number, row.end)
            for job in row.jobs:
                self.book.ran(job, until - self.begun)
            if number in first:
                self._lose(row, until)
        self.running = [row for number, row in enumerate(self.running) if number not in first]
        super()._end_round()

    def _strikes(self, what: Breakdown, row: RunningRow) -> bool:
        return what.gpu in row.gpus if what.gpu >= 0 else any(self.node_of[gpu] == what.node for gpu in row.gpus)

    def _lose(self, row: RunningRow, at: float) -> None:
        """The row had its GPUs for nothing."""
        begin, many = self.begun, len(row.gpus)
        self.book.spent[LOST] += (at - begin) * many
        self.book.spent[NOTICING] += (row.end - at) * many
        for job in row.jobs:
            self.book.struck(job, at)
        for gpu in row.gpus:
            self.worked[gpu] += row.end - begin
        self.table.spend(row.jobs, row.kind, row.end - begin)
        self.done += 1

    def _begin_round(self) -> None:
        """On the nodes that are there."""
        self.begun = self.now
        away = self.book.away
        servers = [[each for each in kind if self.node_of[each[0]] not in away] for kind in self.all_servers]
        if servers != self.servers:
            self.servers, self.counts = servers, [sum(map(len, kind)) for kind in servers]
            self.changed = True
        self.assigned = {
            jobs: place for jobs, place in self.assigned.items() if not any(self.node_of[gpu] in away for gpu in place[1])
        }
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
