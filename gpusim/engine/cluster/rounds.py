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

from gpusim.base.errors import GpusimError
from gpusim.engine.cluster.checked import checked_rates, checked_whole
from gpusim.engine.cluster.outcome import ClusterOutcome, PlacedJobs
from gpusim.engine.cluster.together import TogetherTable
from gpusim.policies.clusters import ArrivingJob, ClusterSpec, JobRates, Shares, ShareView, Together

ROUND, RESET, FAILURES, IDLE = 360.0, 1920.0, 5, 1000


class RunningRow(NamedTuple):
    """A row in this round: until when, and the steps of each of its jobs."""

    end: float
    jobs: Together
    kind: int
    gpus: tuple[int, ...]
    steps: tuple[float, ...]


def _order(each: RunningRow) -> tuple[Any, ...]:
    """The latest is counted first, jobs alone before pairs."""
    return -each.end, len(each.jobs), each.jobs


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
        self.length, self.reset = length, reset
        checked_whole(jobs)
        self.packs = bool(getattr(scheduler, "packs", False))
        self.shuffles = bool(getattr(scheduler, "shuffles", False))
        self.leftovers = bool(getattr(scheduler, "leftovers", True))
        self.shuffler = random.Random(seed + 5)
        self.tables, self.rates = rates, checked_rates(jobs, cluster, rates)
        self.kinds, self.counts = cluster.types, [cluster.count(kind) for kind in cluster.types]
        self.servers: list[list[list[int]]] = [[] for _ in self.kinds]
        first = 0
        for node in cluster.nodes:
            self.servers[self.kinds.index(node.kind)].append(list(range(first, first + node.gpus)))
            first += node.gpus
        many = len(jobs)
        self.steps: list[float] = [0] * many
        self.failed = [0] * many
        self.first, self.end = [math.nan] * many, [math.nan] * many
        self.active: dict[int, None] = {}
        self.table = TogetherTable(len(self.kinds), many, length / 2.0)
        self.assigned: dict[Together, tuple[int, tuple[int, ...]]] = {}
        self.running: list[RunningRow] = []
        self.now = self.jobs[0].arrival if many else 0.0
        self.round_start, self.round_end = 0.0, math.nan
        self.last_reset, self.changed, self.next, self.left = 0.0, True, 0, many
        self.worked = [0.0] * first
        self.placed: list[PlacedJobs] = []
        self.open: dict[Together, list[Any]] = {}  # type, GPUs, start, end so far, round
        self.log: list[tuple[float, float, int]] = []
        self.had = 0.0
        self.kept = self.chances = self.stops = self.rounds = self.idle = self.done = 0

    def advance(self, until: float = math.inf) -> bool:
        """All rounds that begin up to `until` s; whether the run has come to its end.

        Raises GpusimError where the policy leaves jobs without a GPU for good.
        """
        while self.left:
            if self.now > until:
                return False
            before = self.left, self.next, self.done
            upcoming = self.jobs[self.next].arrival if self.next < len(self.jobs) else None
            if upcoming is None and not self.running:
                self.last_reset = 0.0
            self._jump(upcoming)
            self._end_round()
            while self.next < len(self.jobs) and self.jobs[self.next].arrival <= self.now:
                self._arrive(self.next)
                self.next += 1
            self._begin_round()
            self.idle = 0 if (self.left, self.next, self.done) != before else self.idle + 1
            if self.idle > IDLE:
                names = ", ".join(self.jobs[job].name or str(job) for job in list(self.active)[:3])
                raise self.error(f"leaves {names} without GPUs for good, at {self.now:.0f} s")
        self._note()
        return True

    def _jump(self, upcoming: float | None) -> None:
        """To the end of the round, or to the next arrival where nothing runs."""
        latest = max((each.end for each in self.running), default=0.0)
        if latest > 0.0:
            if not math.isnan(self.round_end):
                self.round_start = self.round_end
            self.now = self.round_end = latest
        elif upcoming is not None:
            self.now = upcoming

    def _end_round(self) -> None:
        """Counts what the round has done, the latest first."""
        for each in sorted(self.running, key=_order):
            took = each.end - self.round_start
            share = self.jobs[each.jobs[0]].gpus
            least = share if self.jobs[each.jobs[0]].model else 0.0  # a worker has steps // GPUs of them
            if took <= 0.0 or min(each.steps) < least:
                self._fail(each)
                continue
            for gpu in each.gpus:
                self.worked[gpu] += took
            self.table.spend(each.jobs, each.kind, took)
            self.done += 1
            done = []
            for job, steps in zip(each.jobs, each.steps, strict=True):
                self.failed[job] = 0
                work = self.jobs[job].work
                self.steps[job] = work if steps >= work - self.steps[job] else self.steps[job] + steps
                if self.steps[job] >= work:
                    done.append(job)
            for job in done:
                self._leave(job, each.end)
        self.running = []

    def _fail(self, each: RunningRow) -> None:
        """A round in which a worker had no step to do does not count."""
        self.changed = True
        if len(each.jobs) == 1:
            job = each.jobs[0]
            self.failed[job] += 1
            if self.failed[job] >= FAILURES:
                self._leave(job, math.nan)

    def _leave(self, job: int, end: float) -> None:
        self.end[job] = end
        del self.active[job]
        self.table.remove(job)
        self.left -= 1
        self.changed = True

    def _arrive(self, job: int) -> None:
        said, kinds = self.jobs[job], self.kinds
        self.table.add(job, -1, [self.rates[job][kind] for kind in kinds], None)
        if self.packs:
            for other in self.active:
                if self.jobs[other].gpus == said.gpus:
                    both = [self._pair(other, job, kind) for kind in kinds]
                    self.table.add(other, job, [pair[0] for pair in both], [pair[1] for pair in both])
        self.active[job] = None
        self.changed = True

    def _pair(self, a: int, b: int, kind: str) -> tuple[float, float]:
        one, two = self.jobs[a], self.jobs[b]
        found = self.tables.pair(one, two, kind)
        if found is None:
            said = f"the table has no rates of '{one.model}' and '{two.model}' together on {one.gpus} {kind} each"
            raise GpusimError(said, one.where, f"{self.name} shares GPUs by such rates: take another scheduler, or add them")
        return found

    def _share(self) -> None:
        """Counts shares from zero, and asks for new ones, where jobs have come or gone and the time has come."""
        if not self.changed or not (self.now - self.last_reset >= self.reset or self.last_reset == 0.0):
            return
        self.table.restart(self.now - self.last_reset)
        self.last_reset = self.now
        gpus = dict(sorted(zip(self.kinds, self.counts, strict=True)))
        view = ShareView(self.now, list(self.active), gpus, self.jobs, self.steps, self.rates, self.tables)
        self.table.share(self._checked(self.scheduler.shares(view) if self.active else {}), self.kinds)
        self.changed = False

    def _checked(self, shares: Shares) -> Shares:
        """PolicyError for a row of jobs that are not there."""
        if not isinstance(shares, Mapping):
            raise self.error(f"answers a {type(shares).__name__}, not shares of time by jobs")
        for row, parts in shares.items():
            if not isinstance(row, tuple) or not self.table.knows(row):
                raise self.error(f"answers shares of {row!r}, which is no job or pair that is there")
            if unknown := [kind for kind in parts if kind not in self.kinds]:
                raise self.error(f"answers a share of '{unknown[0]}' GPUs, of which the cluster has none")
            if min(parts.values(), default=0.0) < 0.0:
                raise self.error(f"answers a negative share for {row!r}")
        return shares

    def _begin_round(self) -> None:
        """Gives GPUs for a round."""
        self._share()
        self.table.prioritise()
        order = list(range(len(self.kinds)))
        if self.shuffles:
            self.shuffler.shuffle(order)
        assigned = self._place(self._choose(order), order)
        self._count(assigned)
        self.assigned = assigned
        for jobs, (kind, gpus) in assigned.items():
            self.running.append(self._start(jobs, kind, gpus))
        self.rounds += bool(assigned)
        self._note()

    def _count(self, assigned: dict[Together, tuple[int, tuple[int, ...]]]) -> None:
        """Which jobs could have stayed, which have, and which had to leave."""
        active, there = self.active, set[int]()
        for jobs, (_, gpus) in self.assigned.items():
            if jobs[0] in active or jobs[-1] in active:
                self.chances += 1
            after = assigned.get(jobs)
            if after is None:
                there = there or {job for other in assigned for job in other}
                self.stops += sum(job in active and job not in there for job in jobs)
            elif after[1] is gpus or set(after[1]) == set(gpus):
                self.kept += 1

    def _choose(self, order: list[int]) -> list[list[Together]]:
        """Rows for each type of GPU, by priority: each job once, as long as there is room."""
        taken: set[int] = set()
        chosen: list[list[Together]] = [[] for _ in self.kinds]
        for kind in order:
            room = self.counts[kind]
            for jobs in self.table.ranked(kind, self.leftovers):
                if room == 0:
                    break
                wants = self.jobs[jobs[0]].gpus
                if wants <= room and taken.isdisjoint(jobs):
                    room -= wants
                    taken.update(jobs)
                    chosen[kind].append(jobs)
        return chosen

    def _place(self, chosen: list[list[Together]], order: list[int]) -> dict[Together, tuple[int, tuple[int, ...]]]:
        """GPUs of their own: those with most first, on the GPUs that they have where these are free."""
        found: dict[Together, tuple[int, tuple[int, ...]]] = {}
        for kind in order:
            there = {jobs: self.assigned[jobs] for jobs in chosen[kind] if jobs in self.assigned}
            if len(there) == len(chosen[kind]) and all(before[0] == kind for before in there.values()):
                found.update(there)  # all stay where they are
                continue
            sizes = {jobs: self.jobs[jobs[0]].gpus for jobs in chosen[kind]}
            used: set[int] = set()
            servers, at, place = self.servers[kind], 0, 0
            for size in sorted(set(sizes.values()), reverse=True):
                same = [jobs for jobs in sizes if sizes[jobs] == size]
                for jobs in same:
                    before = self.assigned.get(jobs)
                    if before is not None and before[0] == kind and used.isdisjoint(before[1]):
                        found[jobs] = before
                        used.update(before[1])
                for jobs in same:
                    if jobs in found or not self.table.shared(jobs):
                        continue
                    mine: list[int] = []
                    while len(mine) < size:
                        if place == len(servers[at]):
                            at, place = at + 1, 0
                            continue
                        gpu = servers[at][place]
                        place += 1
                        if gpu not in used:
                            used.add(gpu)
                            mine.append(gpu)
                    found[jobs] = kind, tuple(mine)
        return found

    def _start(self, jobs: Together, kind: int, gpus: tuple[int, ...]) -> RunningRow:
        now, end = self.now, self.now
        steps: list[float] = []
        for job, rate in zip(jobs, self.table.rates(jobs, kind), strict=True):
            many = min(rate * self.length, self.jobs[job].work - self.steps[job])
            if self.jobs[job].model:  # steps are whole; seconds are not
                many = int(many)
            steps.append(many)
            if (until := now + many / rate) > end:
                end = until
            if self.first[job] != self.first[job]:  # nan
                self.first[job] = now
        self.had += (end - self.now) * len(gpus)
        self._keep(jobs, kind, gpus, end)
        return RunningRow(end, jobs, kind, gpus, tuple(steps))

    def _keep(self, jobs: Together, kind: int, gpus: tuple[int, ...], end: float) -> None:
        """One row for rounds on the same GPUs, one after the other."""
        before = self.open.get(jobs)
        if before is not None and before[4] == self.rounds - 1 and before[1] == gpus:
            before[3:] = [end, self.rounds]
            return
        if before is not None:
            self._close(jobs, before)
        self.open[jobs] = [self.kinds[kind], gpus, self.now, end, self.rounds]

    def _close(self, jobs: Together, row: list[Any]) -> None:
        self.placed.append(PlacedJobs(jobs, *row[:4]))

    def _note(self) -> None:
        busy = sum(len(each.gpus) for each in self.running)
        self.log.append((self.now, busy, len(self.active) - sum(len(each.jobs) for each in self.running)))

    def outcome(self) -> ClusterOutcome:
        """What came of it; `counts` has Gavel's utilisation and how often a job could keep its GPUs, and did."""
        at, busy, waiting = zip(*self.log, strict=True)
        for jobs, row in self.open.items():
            self._close(jobs, row)
        self.open = {}
        counts = {"rounds": self.rounds, "kept": self.kept, "chances": self.chances, "end_s": self.now}
        if self.now > 0.0:
            counts["gavel_utilisation"] = float(np.mean(np.array(self.worked) / self.now))
        return ClusterOutcome(
            jobs=self.jobs, cluster=self.cluster, scheduler=self.name, first=np.array(self.first), end=np.array(self.end),
            at=np.array(at), busy=np.array(busy, np.float64), waiting=np.array(waiting), worked=self.had, stops=self.stops,
            placed=tuple(self.placed), counts=counts,
        )  # fmt: skip
