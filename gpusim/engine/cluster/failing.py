"""A cluster whose nodes and jobs fail.

    runs ──failure──▶ hangs until it is noticed ──▶ starts again where it is: its nodes stayed, or spare ones are in their place
                                                ──▶ or goes on with the GPUs that are left, where it is elastic
                                                ──▶ or gives its GPUs back and waits, in front of all others

It goes on from its last checkpoint; without checkpoints from where the scheduler last stopped it.  Each start after the first
takes the time of a restart, in which failures strike as well.  All times in s.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from gpusim.base.errors import GpusimError
from gpusim.engine.cluster.breakdowns import Breakdowns, ClusterFailure, NodeBreakdown, ToldBreakdown
from gpusim.engine.cluster.events import EventRun
from gpusim.engine.cluster.failure_book import LOST, NOTICING, RESTARTING, SAVING, SLOWED, FailureBook
from gpusim.engine.cluster.outcome import ClusterOutcome
from gpusim.engine.cluster.saving import SavedWork
from gpusim.engine.cluster.slowing import SlowEpisode, SlowParts
from gpusim.policies.cluster_state import WHOLE, parts_of
from gpusim.policies.clusters import ArrivingJob, ClusterNode, ClusterSpec, JobRates, Part
from gpusim.policies.forms import CheckpointPolicy
from gpusim.policies.intervals import CheckpointView

MOST = 10_000  # failures of one job without a checkpoint between them


@dataclass(frozen=True, kw_only=True)
class FailingCluster:
    """What fails, and what jobs do about it.

    spares  nodes that stand by for all jobs
    policy  of kind checkpoint, asked at each start; None: nothing is saved
    save    s for which a checkpoint stops a job that says none of its own
    """

    kinds: Sequence[ClusterFailure]
    told: Sequence[ToldBreakdown] = ()
    spares: Sequence[ClusterNode] = ()
    policy: CheckpointPolicy | None = None
    save: float = 0.0
    seed: int = 0

    def begun(self, cluster: ClusterSpec, at: float) -> tuple[Breakdowns, FailureBook]:
        """What fails from `at` s on, and an empty book of it."""
        broken = Breakdowns(cluster, self.kinds, spares=self.spares, seed=self.seed, told=self.told, begin=at)
        return broken, FailureBook(cluster, self.kinds, self.seed)


class FailingEventRun(EventRun):
    """As `EventRun`, with failures.  A job that a scheduler stops saves first, which its restart pays."""

    def __init__(
        self, jobs: Sequence[ArrivingJob], cluster: ClusterSpec, rates: JobRates, scheduler: Any, failing: FailingCluster,
        **more: Any,
    ) -> None:  # fmt: skip
        super().__init__(jobs, cluster, rates, scheduler, **more)
        self.failing = failing
        self.broken, self.book = failing.begun(cluster, self.jobs[0].arrival if self.jobs else 0.0)
        many = len(self.jobs)
        self.saved = [SavedWork() for _ in self.jobs]
        self.hung: dict[int, float] = {}  # since when
        self.noticed: list[tuple[float, int, int]] = []  # when, job, its which run
        self.dies: list[tuple[float, int, int]] = []  # the same of programs that die by themselves
        self.slow, self.keeps = SlowParts(self.view.free), [1.0] * many  # of its pace what each job keeps
        self.runs, self.tries = [0] * many, [0] * many
        self.told = [0.0] * many  # up to when its time stands in the book
        self._failed = getattr(scheduler, "failed", None)

    # ---------------------------------------------------------------- events

    def _upcoming(self, at: float) -> float:
        nothing = at == math.inf and not self.noticed and not self.dies and not self.view.free.broken
        if nothing and not self.broken.coming:
            return math.inf  # jobs wait, on whole nodes, and nothing is to come but failures
        dies = self.dies[0][0] if self.dies else math.inf
        return min(self.broken.at, self.noticed[0][0] if self.noticed else math.inf, dies, self.slow.ends)

    def _happen(self) -> None:
        now = self.view.now
        for ended in self.slow.over(now):
            self._paced_anew(ended)
        while self.broken.at <= now:
            for each in self.broken.happen():
                if each.kind < 0:
                    self.view.free.mended(each.node)
                    self.book.back(now, each.node)
                    self.slow.replaced(each.node)
                else:
                    self._breaks(each)
        while self.noticed and self.noticed[0][0] <= now:
            _, job, which = heapq.heappop(self.noticed)
            if self.runs[job] == which:
                self._notice(job)
        while self.dies and self.dies[0][0] <= now:
            _, job, which = heapq.heappop(self.dies)
            if self.runs[job] == which and job not in self.hung:
                self._fail(job, self.book.kind_of_job(job))

    def _breaks(self, what: NodeBreakdown) -> None:
        view, kind = self.view, self.failing.kinds[what.kind]
        if kind.speed < 1.0:
            self._paced_anew(self.slow.begins(view.now, what.node, what.gpu, kind), what.kind)
            return
        if kind.bytes and view.free.shrinks(what.gpu, kind.bytes):
            return
        gpus = set(view.free.gpus_on(what.node)) if what.gpu < 0 else {what.gpu}
        for job in [job for job, mine in view.running.items() if not gpus.isdisjoint(mine)]:
            if job not in self.hung:
                self._fail(job, what.kind)
        if kind.leaves:
            view.free.breaks(what.node)
            self.book.breaks(view.now, what.node, what.kind)

    def _paced_anew(self, what: SlowEpisode, number: int = -1) -> None:
        """Something is slow from now on, by a kind of this number, or is not any more: jobs that it reaches go on as fast."""
        reached = [job for job, gpus in self.view.running.items() if self.slow.reaches(what, gpus) and job not in self.hung]
        for job in reached:
            if number >= 0 and what.kind.kills:
                self._fail(job, number)
            else:
                self._go(job)

    def _fail(self, job: int, number: int) -> None:
        """Its program is dead; it keeps its GPUs until that is noticed."""
        now, kind = self.view.now, self.failing.kinds[number]
        self._count(job)
        self._spend(job)
        self.steps[job], lost = self.saved[job].fails()
        self.book.spent[LOST] += lost
        self.speed[job], self.hung[job] = 0.0, now
        self.starts[job] += 1
        self.tries[job] += 1
        if self.tries[job] > MOST:
            name = self.jobs[job].name or f"job {job}"
            said = f"{name} fails {MOST:,} times, each time before its next checkpoint"
            raise GpusimError(said, self.jobs[job].where, "checkpoints closer together (--every), or fewer failures")
        self.book.struck(job, now)
        heapq.heappush(self.noticed, (now + kind.detect, job, self.runs[job]))

    def _notice(self, job: int) -> None:
        view = self.view
        gpus, part, said = view.running[job], view.part[job], self.jobs[job]
        there = tuple(gpu for gpu in gpus if view.free.works((gpu,)) and view.free.memory[gpu] >= 0.0)
        kind = view.free.kind_of[gpus[0]]
        size = next((n for n in said.sizes() if n <= len(there) and (n == len(gpus) or view.pace(job, kind, n) > 0.0)), 0)
        if size:
            self._end(job, said)
            view.waiting[job] = None
            self.wants[self._class(job)] += 1
            self._start(job, there[:size], part)
            return
        if self._failed is not None:
            self._failed(view, job)
        self._end(job, said)
        self._wait(job)
        view.waiting.move_to_end(job, last=False)

    # ---------------------------------------------------------------- what a job does

    def _start(self, job: int, gpus: tuple[int, ...], part: Part) -> None:
        nodes = Counter(self.view.free.node_of[gpu] for gpu in gpus)
        saved = self.saved[job]
        if self.steps[job] > saved.safe:
            self.tries[job] = 0
        cost = self.failing.save if math.isnan(self.jobs[job].save) else self.jobs[job].save
        saved.begins(self.steps[job], self._interval(job, nodes, cost), cost)
        self.told[job] = self.view.now
        self.runs[job] += 1
        if self.book.rate_of_jobs:
            heapq.heappush(self.dies, (self.view.now + self.book.strikes_after(job), job, self.runs[job]))
        super()._start(job, gpus, part)

    def _interval(self, job: int, nodes: Counter[int], cost: float) -> float:
        """s of work between checkpoints."""
        policy, rate = self.failing.policy, self.broken.rate(nodes)
        if policy is None:
            return math.inf
        said, first = self.jobs[job], self.first[job]
        ran = 0.0 if math.isnan(first) else self.view.now - first
        between = 1e9 / rate if rate else math.inf
        view = CheckpointView(cost * 1e9, 0.0, between, self._restarts(said) * 1e9, ran * 1e9, self.book.times(job))
        return policy.interval(view) / 1e9

    def _takes(self, job: int, seconds: float) -> float:
        return self.saved[job].takes(seconds)

    def _rate(self, job: int) -> float:
        self.keeps[job] = self.slow.factor(self.view.running[job])
        return 0.0 if job in self.hung else super()._rate(job) * self.keeps[job]

    def _can_grow(self, job: int) -> bool:
        return job not in self.hung

    def _count(self, job: int) -> None:
        now, saved = self.view.now, self.saved[job]
        if now > self.counted[job] and self.speed[job] > 0.0:
            gpus, before, keeps = self._size(job), saved.safe, self.keeps[job]
            self.steps[job], stopped = saved.works(
                now - self.counted[job], self.speed[job], self.steps[job], self.jobs[job].work, gpus * keeps
            )
            if saved.safe > before:
                self.tries[job] = 0
            self.book.spent[SAVING] += stopped * gpus
            if keeps < 1.0:
                self.book.spent[SLOWED] += (now - self.counted[job] - stopped) * gpus * (1.0 - keeps)
        self.counted[job] = max(now, self.counted[job])

    def _size(self, job: int) -> float:
        """GPUs that it has, parts as parts."""
        view = self.view
        return len(view.running[job]) * parts_of(self.jobs[job], view.part[job]) / WHOLE

    def _spend(self, job: int) -> None:
        """The time that it has hung or started again, up to now."""
        now, since, gpus = self.view.now, self.told[job], self._size(job)
        if job in self.hung:
            self.book.spent[NOTICING] += (now - max(since, self.hung[job])) * gpus
        else:
            self.book.spent[RESTARTING] += max(min(now, self.view.started[job]) - since, 0.0) * gpus
        self.told[job] = now

    def _give(self, job: int, said: ArrivingJob) -> None:
        self._spend(job)
        gpus = self.view.running[job]
        super()._give(job, said)
        for node in {self.view.free.node_of[gpu] for gpu in gpus} & self.view.free.broken:
            self.view.free.breaks(node)

    def _end(self, job: int, said: ArrivingJob) -> None:
        began = self.view.since[job]
        super()._end(job, said)
        if self.hung.pop(job, None) is None:
            self.book.ran(job, self.view.now - began)
        self.runs[job] += 1  # what was to strike this run does not

    def _note(self) -> None:
        super()._note()
        self.book.note()

    def outcome(self) -> ClusterOutcome:
        return replace(super().outcome(), failed=self.book.outcome(self.view.now))
