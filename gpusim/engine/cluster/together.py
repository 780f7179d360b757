"""Jobs, and pairs of jobs, that may have a round: the tables of one run."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from gpusim.base.compiled import Placed
from gpusim.base.tables import filled
from gpusim.engine.cluster.round_tables import ROUND_TABLES, RoundTables
from gpusim.policies.clusters import F64, ArrivingJob, ClusterSpec, JobRates, Together

ROWS, PIECES = 64, 1024  # at first
_OF_ROWS = ("a", "b", "asked", "runs", "rate", "share", "had", "deficit", "priority", "holds", "order", "merged", "size")


class TogetherTable:
    """Rows in the order in which they came; what a round does with them is `one_round`'s.

    length     s of a round; a job counts as having had half of one before it ran
    leftovers  jobs without a share may have what is left
    """

    def __init__(
        self, jobs: Sequence[ArrivingJob], cluster: ClusterSpec, rates: JobRates, length: float, leftovers: bool
    ) -> None:  # fmt: skip
        kinds, gpus = cluster.types, cluster.gpus
        most, elastic = max((job.gpus for job in jobs), default=1), [number for number, job in enumerate(jobs) if job.elastic]
        lengths = {
            "jobs": max(len(jobs), 1), "R": ROWS, "K": len(kinds), "G": gpus, "K + 1": len(kinds) + 1,
            "M": most, "M + 1": most + 1, "E": max(len(elastic), 1), "P": PIECES + gpus,
        }  # fmt: skip
        self.tables: RoundTables = filled(RoundTables, lengths)
        self._placed = Placed(self.tables, ROUND_TABLES)
        course, rows = self.course, self.tables.job
        course["length"], course["initial"], course["left"] = length, length / 2.0, len(jobs)
        course["leftovers"], course["changed"] = leftovers, 1
        rows["first"] = rows["end"] = math.nan
        for row, job in zip(rows, jobs, strict=False):
            row["wants"], row["most"], row["whole"], row["work"] = job.gpus, job.gpus, bool(job.model), job.work
        rows["elastic"] = -1
        for at, number in enumerate(elastic):
            rows["elastic"][number], job = at, jobs[number]
            for k, kind in enumerate(kinds):
                self.tables.pace[at, k, list(job.sizes())] = [rates.pace(job, kind, size) for size in job.sizes()]
        first = 0
        self._nodes: list[list[range]] = [[] for _ in kinds]
        for node in cluster.nodes:
            self._nodes[kinds.index(node.kind)].append(range(first, first + node.gpus))
            first += node.gpus
        self.pool(frozenset())
        self._active: dict[int, None] = {}
        self._rows: dict[Together, int] = {}

    @property
    def address(self) -> int:
        """Where compiled code finds the tables: to hand on each of them takes as long as a small round."""
        if self._placed.tables is not self.tables:
            self._placed = Placed(self.tables, ROUND_TABLES)
        return self._placed.address

    @property
    def course(self) -> Any:
        """The numbers of the run."""
        return self.tables.course[0]

    def pool(self, away: frozenset[int]) -> list[int]:
        """The GPUs that can be had, without those that are away: how many of each type."""
        kinds = [[gpu for node in nodes for gpu in node if gpu not in away] for nodes in self._nodes]
        counts = [len(kind) for kind in kinds]
        self.tables.first[:] = np.concatenate([[0], np.cumsum(counts)])
        self.tables.pool[: sum(counts)] = [gpu for kind in kinds for gpu in kind]
        return counts

    def active(self) -> list[int]:
        """Jobs that are there, in the order in which they came."""
        return list(self._active)

    def arrived(self, job: int) -> None:
        """The job is there."""
        self._active[job] = None
        self.tables.job["active"][job] = 1
        self.course["active"] += 1
        self.course["changed"] = 1

    def rows_left(self) -> None:
        """Jobs have gone, and rows with them."""
        for job in self.tables.gone[: int(self.course["gone"])].tolist():
            del self._active[job]
        self._rows = {}

    def add(self, a: int, b: int, rates: Sequence[float], others: Sequence[float] | None) -> None:
        """A job (b = -1), or a pair with the rates of both."""
        i = int(self.course["rows"])
        if i == len(self.tables.a):
            self._longer(_OF_ROWS)
        t = self.tables
        self.course["rows"] = i + 1
        t.a[i], t.b[i], t.asked[i] = a, b, 0
        both = list(zip(rates, rates if others is None else others, strict=True))
        t.rate[i], t.runs[i] = both, [one > 0.0 and other > 0.0 for one, other in both]
        t.share[i] = t.deficit[i] = t.priority[i] = 0.0
        t.had[i] = self.course["initial"] if b < 0 else 0.0
        self._rows = {}

    def room(self) -> None:
        """For the pieces of one round more."""
        if self.course["pieces"] + len(self.tables.used) > len(self.tables.piece):
            self._longer(("piece", "gpus_of"))

    def _longer(self, names: Sequence[str]) -> None:
        old = {name: getattr(self.tables, name) for name in names}
        longer: Mapping[str, Any] = {name: np.concatenate([array, np.zeros_like(array)]) for name, array in old.items()}
        self.tables = self.tables._replace(**longer)

    def rows(self) -> dict[Together, int]:
        """Where each job or pair stands."""
        if not self._rows:
            many = int(self.course["rows"])
            both = zip(self.tables.a[:many].tolist(), self.tables.b[:many].tolist(), strict=True)
            self._rows = {(a,) if b < 0 else (a, b): i for i, (a, b) in enumerate(both)}
        return self._rows

    def restart(self, elapsed: float) -> None:
        """Time had counts from zero; what a row lacks of its share stays as a deficit."""
        t, n, initial = self.tables, int(self.course["rows"]), float(self.course["initial"])
        due = np.where(t.asked[:n, None], t.share[:n] * elapsed, 0.0)
        t.deficit[:n] += due - (t.had[:n] - initial)
        t.had[:n] = initial
        t.total[:] = n * initial

    def share(self, at: list[int], shares: F64) -> None:
        """New shares of time: those of these rows, none for all others."""
        n = int(self.course["rows"])
        self.tables.share[:n], self.tables.asked[:n] = 0.0, 1
        if at:
            self.tables.share[at] = shares
