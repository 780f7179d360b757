"""What failures have done to a cluster, as it happens."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

import numpy as np

from gpusim.engine.cluster.breakdowns import ClusterFailure
from gpusim.engine.cluster.outcome import BrokenNode, FailedJobs
from gpusim.policies.clusters import ClusterSpec

SAVING, NOTICING, RESTARTING, LOST, SLOWED = "saving", "noticing", "restarting", "worked twice", "slowed"


class FailureBook:
    """Of one run; times in s.

    away   nodes that have failed and are not back: since when, by which kind
    spent  s of GPUs that were no work that counts
    """

    def __init__(self, cluster: ClusterSpec, kinds: Sequence[ClusterFailure], seed: int) -> None:
        self._nodes, self._kinds, self._seed = cluster.nodes, kinds, seed
        self.away: dict[int, tuple[float, int]] = {}
        self.spent = dict.fromkeys((SAVING, NOTICING, RESTARTING, LOST), 0.0)
        if any(kind.speed < 1.0 for kind in kinds):
            self.spent[SLOWED] = 0.0
        self.interruptions: list[float] = []
        self._broken: list[BrokenNode] = []
        self._over_time: list[tuple[float, float]] = []
        self._of_jobs = [(number, kind.of_jobs) for number, kind in enumerate(kinds) if kind.of_jobs]
        self.rate_of_jobs = math.fsum(rate for _, rate in self._of_jobs)
        self._hazard: dict[int, float] = {}
        self._struck: dict[int, int] = {}

    def breaks(self, now: float, node: int, kind: int) -> None:
        """The node is away from now on."""
        self.away[node] = now, kind

    def back(self, now: float, node: int) -> None:
        """The node is back, or another in its place."""
        since, kind = self.away.pop(node)
        self._broken.append(BrokenNode(node, since, now, self._kinds[kind].name))

    def strikes_after(self, job: int) -> float:
        """s of running until a failure of the job's own strikes it: the same under all schedulers."""
        if not self.rate_of_jobs:
            return math.inf
        if (left := self._hazard.get(job)) is None:
            left = self._hazard[job] = self._drawn(job, "hazard").expovariate(1.0)
        return left / self.rate_of_jobs

    def ran(self, job: int, seconds: float) -> None:
        """It has run so long without a failure."""
        if job in self._hazard:
            self._hazard[job] -= seconds * self.rate_of_jobs

    def struck(self, job: int, now: float) -> None:
        """A failure has ended a run of the job."""
        self.interruptions.append(now)
        self._struck[job] = self.times(job) + 1
        self._hazard.pop(job, None)

    def times(self, job: int) -> int:
        """How often a failure has ended a run of the job."""
        return self._struck.get(job, 0)

    def kind_of_job(self, job: int) -> int:
        """What strikes the job itself, of kinds by number."""
        kinds, rates = zip(*self._of_jobs, strict=True)
        return int(self._drawn(job, "kind").choices(kinds, rates)[0])

    def _drawn(self, job: int, what: str) -> random.Random:
        return random.Random(f"{self._seed} {job} {self.times(job)} {what}")

    def note(self) -> None:
        """Called whenever the run notes what is in use."""
        self._over_time.append((sum(self._nodes[node].gpus for node in self.away), math.fsum(self.spent.values())))

    def outcome(self, now: float) -> FailedJobs:
        """What has happened so far."""
        still = [BrokenNode(node, since, now, self._kinds[kind].name) for node, (since, kind) in self.away.items()]
        away, lost = (np.array(column, np.float64) for column in zip(*self._over_time, strict=True))
        return FailedJobs(
            broken=(*self._broken, *still), interruptions=tuple(self.interruptions), spent=dict(self.spent), away=away,
            lost=lost,
        )  # fmt: skip
