"""A cluster in rounds: a policy says which share of time each job is to have, and each round goes to those that lack most.

The rules are those of Gavel's mechanism (Narayanan et al., OSDI 2020), as its simulator carries them out: a round lasts until
all that it holds have done the steps of a whole round, or their last; a round goes to the job that has had the smallest part of
its share since shares were last counted from zero; jobs stay on their GPUs where they can.  Some of it is an accident of that
simulator (the first round after an idle time counts from the round before; a job with fewer steps left than GPUs fails a
round, and is given up after five): it is kept, since times are to be equal.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from gpusim.base.compiled import direct
from gpusim.base.errors import GpusimError
from gpusim.engine.cluster.checked import checked_rates, checked_whole
from gpusim.engine.cluster.one_round import begin_round, end_round
from gpusim.engine.cluster.outcome import ClusterOutcome, PlacedJobs
from gpusim.engine.cluster.together import TogetherTable
from gpusim.policies.clusters import (
    F64,
    ArrivingJob,
    ClusterSpec,
    JobNumbers,
    JobRates,
    Shares,
    ShareTable,
    ShareView,
    Together,
)

ROUND, RESET, IDLE = 360.0, 1920.0, 1000


class RunningRow(NamedTuple):
    """A row in this round: until when, and on which GPUs."""

    end: float
    jobs: Together
    kind: int
    gpus: tuple[int, ...]


class RoundRun:
    """One run.  `advance` carries it to its end; `outcome` says what came of it.

    scheduler  an object with `shares`; packs, shuffles, leftovers say whether pairs are looked at, whether types of GPU are
               served in an order drawn for each round, and whether jobs without a share may have what is left
    length     s of a round; reset: s after which shares may be counted anew
    """

    def __init__(
        self, jobs: Sequence[ArrivingJob], cluster: ClusterSpec, rates: JobRates, scheduler: Any, *, name: str = "",
        seed: int = 0, length: float = ROUND, reset: float = RESET,
        error: Callable[[str], GpusimError] = GpusimError,
    ) -> None:  # fmt: skip
        self.jobs, self.cluster, self.scheduler, self.name, self.error = tuple(jobs), cluster, scheduler, name, error
        self.reset = reset
        checked_whole(jobs)
        self.packs = bool(getattr(scheduler, "packs", False))
        self.shuffles = bool(getattr(scheduler, "shuffles", False))
        self.shuffler = random.Random(seed + 5)
        self.rates_of, self.rates = rates, checked_rates(jobs, cluster, rates)
        self.numbers = JobNumbers(self.jobs, self.rates, sorted(cluster.types))
        self.kinds, self.counts = cluster.types, [cluster.count(kind) for kind in cluster.types]
        self.table = TogetherTable(jobs, cluster, rates, length, bool(getattr(scheduler, "leftovers", True)))
        self.now = self.jobs[0].arrival if jobs else 0.0
        self.round_start, self.round_end = 0.0, math.nan
        self.last_reset, self.next, self.idle = 0.0, 0, 0
        self.log: list[tuple[float, float, int]] = []

    def advance(self, until: float = math.inf) -> bool:
        """All rounds that begin up to `until` s; whether the run has come to its end.

        Raises GpusimError where the policy leaves jobs without a GPU for good.
        """
        course = self.table.course
        while course["left"]:
            if self.now > until:
                return False
            before = int(course["left"]), self.next, int(course["done"])
            upcoming = self.jobs[self.next].arrival if self.next < len(self.jobs) else None
            if upcoming is None and not course["held"]:
                self.last_reset = 0.0
            self._jump(upcoming)
            self._end_round()
            while self.next < len(self.jobs) and self.jobs[self.next].arrival <= self.now:
                self._arrive(self.next)
                self.next += 1
            course = self.table.course
            self._begin_round()
            self._note()
            self.idle = 0 if (course["left"], self.next, course["done"]) != before else self.idle + 1
            if self.idle > IDLE:
                names = ", ".join(self.jobs[job].name or str(job) for job in self.table.active()[:3])
                raise self.error(f"leaves {names} without GPUs for good, at {self.now:.0f} s")
        self._note()
        return True

    def _jump(self, upcoming: float | None) -> None:
        """To the end of the round, or to the next arrival where nothing runs."""
        latest = float(self.table.course["latest"])
        if latest > 0.0:
            if not math.isnan(self.round_end):
                self.round_start = self.round_end
            self.now = self.round_end = latest
        elif upcoming is not None:
            self.now = upcoming

    def _end_round(self) -> None:
        direct(end_round)(self.table.address, self.round_start)
        if self.table.course["gone"]:
            self.table.rows_left()

    def _arrive(self, job: int) -> None:
        said, kinds = self.jobs[job], self.kinds
        self.table.add(job, -1, [self.rates[job][kind] for kind in kinds], None)
        if self.packs:
            for other in self.table.active():
                if self.jobs[other].gpus == said.gpus:
                    both = [self._pair(other, job, kind) for kind in kinds]
                    self.table.add(other, job, [pair[0] for pair in both], [pair[1] for pair in both])
        self.table.arrived(job)

    def _pair(self, a: int, b: int, kind: str) -> tuple[float, float]:
        one, two = self.jobs[a], self.jobs[b]
        found = self.rates_of.pair(one, two, kind)
        if found is None:
            said = f"the table has no rates of '{one.model}' and '{two.model}' together on {one.gpus} {kind} each"
            raise GpusimError(said, one.where, f"{self.name} shares GPUs by such rates: take another scheduler, or add them")
        return found

    def _share(self) -> None:
        """Counts shares from zero, and asks for new ones, where jobs have come or gone and the time has come."""
        if not self.table.course["changed"] or not (self.now - self.last_reset >= self.reset or self.last_reset == 0.0):
            return
        self.table.restart(self.now - self.last_reset)
        self.last_reset = self.now
        gpus = dict(sorted(zip(self.kinds, self.counts, strict=True)))
        active, steps = self.table.active(), self.table.tables.job["steps"]
        view = ShareView(self.now, active, gpus, self.jobs, steps, self.rates, self.rates_of)
        view.known = self.numbers
        self.table.share(*self._checked(self.scheduler.shares(view) if active else {}))
        self.table.course["changed"] = 0
        if active and (sizes := getattr(self.scheduler, "sizes", None)) is not None:
            self._size(sizes(view), active)

    def _size(self, sizes: object, active: Sequence[int]) -> None:
        """GPUs that elastic jobs take at most in the rounds that come.  PolicyError for sizes that they cannot have."""
        if not isinstance(sizes, Mapping):
            raise self.error(f"answers a {type(sizes).__name__}, not numbers of GPUs by jobs")
        for job, size in sizes.items():
            if job not in active:
                raise self.error(f"answers a number of GPUs of {job!r}, which is no job that is there")
            if size not in self.jobs[job].sizes():
                can = ", ".join(map(str, self.jobs[job].sizes()))
                raise self.error(f"answers {size!r} GPUs for {self.jobs[job].name or f'job {job}'}, which can have {can}")
        for job in active:
            self.table.tables.job[job]["most"] = sizes.get(job, self.jobs[job].gpus)

    def _checked(self, shares: Shares) -> tuple[list[int], F64]:
        """(rows, shares by type).  PolicyError for a row of jobs that are not there."""
        if not isinstance(shares, Mapping):
            raise self.error(f"answers a {type(shares).__name__}, not shares of time by jobs")
        rows, kinds = self.table.rows(), set(self.kinds)
        if isinstance(shares, ShareTable):
            return [rows[row] for row in shares.rows], shares.parts[:, [shares.kinds.index(kind) for kind in self.kinds]]
        if strange := [row for row in shares if row not in rows]:
            raise self.error(f"answers shares of {strange[0]!r}, which is no job or pair that is there")
        if unknown := {kind: None for parts in shares.values() if parts.keys() != kinds for kind in parts if kind not in kinds}:
            raise self.error(f"answers a share of '{next(iter(unknown))}' GPUs, of which the cluster has none")
        at = [rows[row] for row in shares]
        values = np.array([[parts.get(kind, 0.0) for kind in self.kinds] for parts in shares.values()], np.float64)
        if (negative := np.flatnonzero((values < 0.0).any(axis=-1))).size:
            raise self.error(f"answers a negative share for {list(shares)[negative[0]]!r}")
        return at, values

    def _begin_round(self) -> None:
        """Gives GPUs for a round."""
        self._share()
        order = list(range(len(self.kinds)))
        if self.shuffles:
            self.shuffler.shuffle(order)
        self.table.room()
        self.table.course["now"] = self.now
        direct(begin_round)(self.table.address, np.array(order, np.int64))

    def running(self) -> list[RunningRow]:
        """What runs in this round."""
        tables = self.table.tables
        held, gpus = tables.held[: int(self.table.course["held"])], tables.gpus
        return [
            RunningRow(float(h["end"]), _together(h), int(h["kind"]), tuple(gpus[i, : h["many"]].tolist()))
            for i, h in enumerate(held)
        ]

    def _note(self) -> None:
        course = self.table.course
        self.log.append((self.now, int(course["busy"]), int(course["active"] - course["serving"])))

    def outcome(self) -> ClusterOutcome:
        """What came of it; `counts` has Gavel's utilisation and how often a job could keep its GPUs, and did."""
        course, tables = self.table.course, self.table.tables
        at, busy, waiting = zip(*self.log, strict=True)
        many = int(course["pieces"])
        piece = tables.piece[:many]
        a, b, kind, wants, start, end = (piece[name].tolist() for name in ("a", "b", "kind", "many", "start", "end"))
        jobs = [(one,) if other < 0 else (one, other) for one, other in zip(a, b, strict=True)]
        gpus = [tuple(each[:n]) for each, n in zip(tables.gpus_of[:many].tolist(), wants, strict=True)]
        kinds = [self.kinds[k] for k in kind]
        placed = tuple(map(PlacedJobs, jobs, kinds, gpus, start, end))
        counts = {name: float(course[name]) for name in ("rounds", "kept", "chances")} | {"end_s": self.now}
        if self.now > 0.0:
            counts["gavel_utilisation"] = float(np.mean(tables.worked / self.now))
        return ClusterOutcome(
            jobs=self.jobs, cluster=self.cluster, scheduler=self.name, first=tables.job["first"][: len(self.jobs)].copy(),
            end=tables.job["end"][: len(self.jobs)].copy(), at=np.array(at), busy=np.array(busy, np.float64),
            waiting=np.array(waiting), worked=float(course["had"]), stops=int(course["stops"]), placed=placed, counts=counts,
        )  # fmt: skip


def _together(row: Any) -> Together:
    a, b = int(row["a"]), int(row["b"])
    return (a,) if b < 0 else (a, b)
