"""A cluster from event to event: a job comes or ends, and a policy starts and stops jobs until it has nothing more to say.

A job has its GPUs alone, or the share of one that it asks for, and then makes the steps that its rate says.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gpusim.base.errors import GpusimError
from gpusim.engine.cluster.checked import checked_places, checked_rates
from gpusim.engine.cluster.outcome import ClusterOutcome, PlacedJobs
from gpusim.policies.cluster_state import WHOLE, parts_of
from gpusim.policies.cluster_view import ClusterView
from gpusim.policies.clusters import ArrivingJob, ClusterSpec, JobRates

_Class = tuple[int, int, float, float, float, tuple[str, ...]]


class EventRun:
    """One run.  `advance` carries it to its end; `outcome` says what came of it.

    scheduler  an object with `place`, and with `arrived` and `left` where it keeps books
    restart    s that a job which was stopped needs before it goes on
    """

    def __init__(
        self, jobs: Sequence[ArrivingJob], cluster: ClusterSpec, rates: JobRates, scheduler: Any, *, name: str = "",
        restart: float = 0.0, error: Callable[[str], GpusimError] = GpusimError,
    ) -> None:  # fmt: skip
        self.jobs, self.cluster, self.scheduler, self.name, self.error = tuple(jobs), cluster, scheduler, name, error
        self.restart = restart
        self.rates = checked_rates(jobs, cluster, rates)
        many = len(jobs)
        self.steps = [0.0] * many
        self.view = ClusterView(cluster, self.jobs, self.rates, self.steps)
        checked_places(self.jobs, self.view)
        self.first, self.end = [math.nan] * many, [math.nan] * many
        self.starts: list[int] = [0] * many  # how often each has begun
        self.ends: list[tuple[float, int, int]] = []  # (when, job, its which start)
        self.next, self.left, self.stops, self.asked = 0, many, 0, 0
        self.busy = 0  # thousandths
        self.worked = 0.0  # s of GPUs
        self.wants: Counter[_Class] = Counter()
        self.placed: list[PlacedJobs] = []
        self.log: list[tuple[float, float, int, float, float]] = []
        self._arrived = getattr(scheduler, "arrived", None)
        self._left = getattr(scheduler, "left", None)

    def advance(self, until: float = math.inf) -> bool:
        """All that happens up to `until` s; whether the run has come to its end.

        Raises GpusimError where the policy leaves jobs without GPUs for good, or names what is not there.
        """
        view, jobs = self.view, self.jobs
        while self.left:
            while self.ends and self.starts[self.ends[0][1]] != self.ends[0][2]:
                heapq.heappop(self.ends)
            arrival = jobs[self.next].arrival if self.next < len(jobs) else math.inf
            at = min(arrival, self.ends[0][0] if self.ends else math.inf)
            if at == math.inf:
                names = ", ".join(jobs[job].name or str(job) for job in list(view.waiting)[:3])
                raise self.error(f"leaves {names} without GPUs for good, at {view.now:.0f} s")
            if at > until:
                return False
            view.now = at
            while self.ends and self.ends[0][0] <= at:
                _, job, which = heapq.heappop(self.ends)
                if self.starts[job] == which:
                    self._finish(job)
            while self.next < len(jobs) and jobs[self.next].arrival <= at:
                self._wait(self.next)
                self.next += 1
            self._ask()
            self._note()
        return True

    def _wait(self, job: int) -> None:
        self.view.waiting[job] = None
        self.wants[self._class(job)] += 1
        if self._arrived is not None:
            self._arrived(self.view, job)

    def _class(self, job: int) -> _Class:
        """Jobs that fit where one of them fits."""
        said = self.jobs[job]
        return said.gpus, parts_of(said), said.memory, said.host, said.cpus, tuple(self.view.kinds(job))

    def _ask(self) -> None:
        """Carries out one decision after the other."""
        decided, most = 0, 4 * (len(self.view.waiting) + len(self.view.running)) + 100
        while (self.view.waiting or self.view.running) and (made := self.scheduler.place(self.view)) is not None:
            job, gpus = self._decision(made)
            if gpus:
                self._start(job, gpus)
            else:
                self._stop(job)
            decided += 1
            if decided > most:
                raise self.error(f"starts and stops jobs without end at {self.view.now:.0f} s")
        self.asked += decided + 1

    def _decision(self, made: Any) -> tuple[int, tuple[int, ...]]:
        try:
            job, gpus = made
            job, gpus = int(job), tuple(int(gpu) for gpu in gpus)
        except (TypeError, ValueError):
            raise self.error(f"answers {made!r}, not (job, GPUs), (job, ()) or None") from None
        name = self.jobs[job].name or f"job {job}" if 0 <= job < len(self.jobs) else f"job {job}"
        if gpus and job not in self.view.waiting:
            raise self.error(f"starts {name}, which {'runs already' if job in self.view.running else 'does not wait'}")
        if not gpus and job not in self.view.running:
            raise self.error(f"stops {name}, which does not run")
        if gpus and (reason := self.view.free.why_not(self.jobs[job], gpus)):
            raise self.error(f"puts {name} on {reason}")
        if gpus and self.rates[job][self.view.free.kind_of[gpus[0]]] <= 0.0:
            raise self.error(f"puts {name} on {self.view.free.kind_of[gpus[0]]}, where it cannot run")
        return job, gpus

    def _start(self, job: int, gpus: tuple[int, ...]) -> None:
        view, said, now = self.view, self.jobs[job], self.view.now
        del view.waiting[job]
        wanted = self._class(job)
        self.wants[wanted] -= 1
        if not self.wants[wanted]:
            del self.wants[wanted]
        view.free.take(said, gpus)
        self.busy += parts_of(said) * len(gpus)
        rate = self.rates[job][view.free.kind_of[gpus[0]]]
        begins = now + (self.restart if self.starts[job] else 0.0)
        self.starts[job] += 1
        view.running[job], view.started[job], view.since[job] = gpus, begins, now
        heapq.heappush(self.ends, (begins + (said.work - self.steps[job]) / rate, job, self.starts[job]))
        if math.isnan(self.first[job]):
            self.first[job] = now

    def _release(self, job: int) -> tuple[int, ...]:
        view, said = self.view, self.jobs[job]
        gpus = view.running.pop(job)
        view.free.take(said, gpus, 1)
        self.busy -= parts_of(said) * len(gpus)
        self.worked += (view.now - view.since.pop(job)) * len(gpus) * said.share
        return gpus

    def _stop(self, job: int) -> None:
        view = self.view
        gpus, begun = self._release(job), view.started.pop(job)
        kind = view.free.kind_of[gpus[0]]
        self.steps[job] += max(view.now - begun, 0.0) * self.rates[job][kind]
        self.starts[job] += 1  # the end that is on the heap is no longer one
        self.stops += 1
        self.placed.append(PlacedJobs((job,), kind, gpus, begun, view.now))
        self._wait(job)

    def _finish(self, job: int) -> None:
        view = self.view
        gpus, begun = self._release(job), view.started.pop(job)
        self.placed.append(PlacedJobs((job,), view.free.kind_of[gpus[0]], gpus, begun, view.now))
        self.end[job], self.steps[job] = view.now, self.jobs[job].work
        self.left -= 1
        if self._left is not None:
            self._left(view, job)

    def _note(self) -> None:
        """What is in use from now on; what is idle though it would be enough for a job, and whether it lies apart."""
        view, idle, apart = self.view, 0, 0
        if view.waiting and self.busy < len(view.free.room) * WHOLE:
            total = view.free.total
            enough = [each for each in self.wants if any(total[kind] >= each[0] * each[1] for kind in each[-1])]
            if enough:
                idle = len(view.free.room) * WHOLE - self.busy
                apart = 0 if any(self._fits(each) for each in enough) else idle
        self.log.append((view.now, self.busy / WHOLE, len(view.waiting), idle / WHOLE, apart / WHOLE))

    def _fits(self, wanted: _Class) -> bool:
        gpus, parts, memory, host, cpus, kinds = wanted
        like = ArrivingJob(gpus=gpus, share=parts / WHOLE, memory=memory, host=host, cpus=cpus)
        return bool(self.view.free.place(like, list(kinds), "first"))

    def outcome(self) -> ClusterOutcome:
        """What came of it."""
        at, busy, waiting, idle, apart = (np.array(column) for column in zip(*self.log, strict=True))
        return ClusterOutcome(
            jobs=self.jobs, cluster=self.cluster, scheduler=self.name, first=np.array(self.first), end=np.array(self.end),
            at=at, busy=busy, waiting=waiting, worked=self.worked, idle=idle, apart=apart, stops=self.stops,
            placed=tuple(self.placed), counts={"decisions": self.asked},
        )  # fmt: skip
