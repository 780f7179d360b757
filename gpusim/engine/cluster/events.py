"""A cluster from event to event: a job comes or ends, and a policy starts and stops jobs until it has nothing more to say.

A job has its GPUs alone and makes the steps that its rate says; or it has a share of them or a MIG slice, and is as fast as its
rates say beside those that are there.  A job that takes more memory than it said, and more than its GPU has beside the others,
fails as it starts: it waits again, and from then on it and those beside it count with what they take.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from gpusim.base.errors import GpusimError
from gpusim.engine.cluster.beside import SharedGpus, is_whole
from gpusim.engine.cluster.checked import checked_places, checked_rates
from gpusim.engine.cluster.outcome import ClusterOutcome, PlacedJobs
from gpusim.machine import mig
from gpusim.policies.cluster_state import WHOLE, parts_of
from gpusim.policies.cluster_view import ClusterView
from gpusim.policies.clusters import ArrivingJob, ClusterSpec, JobRates, Part

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
        self.jobs, self.cluster, self.scheduler, self.name, self.error = list(jobs), cluster, scheduler, name, error
        self.restart = restart
        self.rates = checked_rates(jobs, cluster, rates)
        many = len(jobs)
        self.steps = [0.0] * many
        self.view = ClusterView(cluster, self.jobs, self.rates, self.steps, rates)
        self.shared = SharedGpus(self.view, rates)
        self.speed = [0.0] * many  # steps/s of jobs that run
        self.counted = [0.0] * many  # up to when `steps` holds
        checked_places(self.jobs, self.view)
        self.first, self.end = [math.nan] * many, [math.nan] * many
        self.starts: list[int] = [0] * many  # how often each has begun, or changed its speed
        self.began = [False] * many
        self.ends: list[tuple[float, int, int]] = []  # (when, job, its which start)
        self.next, self.left, self.stops, self.asked = 0, many, 0, 0
        self.begun, self.peaks = 0, any(job.peak > job.memory for job in jobs)
        self.memory_failures: list[float] = []  # when
        self.busy = 0  # thousandths
        self.worked = 0.0  # s of GPUs
        self.wants: Counter[_Class] = Counter()
        self.placed: list[PlacedJobs] = []
        self.log: list[tuple[float, float, int, float, float]] = []
        self.elastic = [number for number, job in enumerate(jobs) if job.elastic]
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
            at = min(arrival, self.ends[0][0] if self.ends else math.inf, view.later)
            at = min(at, self._upcoming(at))
            if at == math.inf:
                names = ", ".join(jobs[job].name or str(job) for job in list(view.waiting)[:3])
                raise self.error(f"leaves {names} without GPUs for good, at {view.now:.0f} s")
            if at > until:
                return False
            view.now = at
            if view.later <= at:
                view.later = math.inf
            while self.ends and self.ends[0][0] <= at:
                _, job, which = heapq.heappop(self.ends)
                if self.starts[job] == which:
                    self._finish(job)
            self._happen()
            while self.next < len(jobs) and jobs[self.next].arrival <= at:
                self._wait(self.next)
                self.next += 1
            self._ask()
            if self.elastic and not view.waiting:
                self._grow()
            self._note()
        return True

    def _upcoming(self, at: float) -> float:
        """When something else happens, which may make a place for what waits; `at`: when something is known to."""
        return math.inf

    def _happen(self) -> None:
        """What else is due."""

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
            job, gpus, part = self._decision(made)
            if not gpus:
                self._stop(job)
            elif job in self.view.running and gpus != self.view.running[job]:
                self._move(job, gpus)
            elif job in self.view.running:
                self._resize(job, part)
            else:
                self._start(job, gpus, part)
            decided += 1
            if decided > most:
                raise self.error(f"starts and stops jobs without end at {self.view.now:.0f} s")
        self.asked += decided + 1

    def _decision(self, made: Any) -> tuple[int, tuple[int, ...], Part]:
        try:
            job, gpus, *more = made
            job, gpus = int(job), tuple(int(gpu) for gpu in gpus)
            part = None if not more else more[0] if isinstance(more[0], str) else float(more[0])
        except (TypeError, ValueError):
            raise self.error(f"answers {made!r}, not (job, GPUs), (job, GPUs, part), (job, ()) or None") from None
        view = self.view
        name = self.jobs[job].name or f"job {job}" if 0 <= job < len(self.jobs) else f"job {job}"
        if not gpus and job not in view.running:
            raise self.error(f"stops {name}, which does not run")
        if not gpus:
            return job, gpus, 1.0
        moves = job in view.running and self.jobs[job].elastic and gpus != view.running[job]
        if job in view.running and not moves and (part is None or gpus != view.running[job]):
            raise self.error(f"starts {name}, which runs already")
        if job not in view.running and job not in view.waiting:
            raise self.error(f"starts {name}, which does not wait")
        if job in view.running:
            view.free.take(self.jobs[job], view.running[job], 1, view.part[job])
        reason = view.free.why_not(self.jobs[job], gpus, part)
        if job in view.running:
            view.free.take(self.jobs[job], view.running[job], -1, view.part[job])
        if reason:
            raise self.error(f"puts {name} on {reason}")
        if part is not None and part != self.jobs[job].share and not self.jobs[job].model:
            way = "mig" if isinstance(part, str) else "mps"
            rates = f"jobs that are programs, with --rates 'island(sharing={way})', have such rates"
            raise self.error(f"puts {name} on {part} of GPU {gpus[0]}, and nothing says how fast it is there: {rates}")
        if self.rates[job][view.free.kind_of[gpus[0]]] <= 0.0 or self._pace(job, gpus) <= 0.0:
            raise self.error(f"puts {name} on {view.free.kind_of[gpus[0]]}, where it cannot run")
        return job, gpus, self.jobs[job].share if part is None else part

    def _start(self, job: int, gpus: tuple[int, ...], part: Part) -> None:
        view, said, now = self.view, self.jobs[job], self.view.now
        del view.waiting[job]
        wanted = self._class(job)
        self.wants[wanted] -= 1
        if not self.wants[wanted]:
            del self.wants[wanted]
        begins = now + (self._restarts(said) if self.began[job] else 0.0)
        self.began[job] = True
        self.begun += 1
        view.running[job], view.started[job], view.since[job] = gpus, begins, now
        if math.isnan(self.first[job]):
            self.first[job] = now
        self._have(job, part)
        if self.peaks and self._too_much(job):
            self.memory_failures.append(now)
            for other in {each for gpu in gpus for each in view.on.get(gpu, ())} - {job}:
                self._now_known(other)
            self.jobs[job] = replace(said, memory=max(said.memory, said.peak))
            self._stop(job, said)

    def _have(self, job: int, part: Part) -> None:
        """The job has this part of its GPUs from now on."""
        view, said = self.view, self.jobs[job]
        gpus = view.running[job]
        view.free.take(said, gpus, -1, part)
        view.part[job] = part
        self.busy += parts_of(said, part) * len(gpus)
        self.counted[job] = max(view.now, view.started[job])
        others = () if is_whole(part) else self.shared.enter(job, gpus)
        for each in (*others, job):
            self._go(each)

    def _now_known(self, job: int) -> None:
        """What a job that runs takes in truth counts from now on."""
        view, said = self.view, self.jobs[job]
        if said.peak > said.memory and not isinstance(view.part[job], str):
            view.free.take(said, view.running[job], 1, view.part[job])
            self.jobs[job] = replace(said, memory=said.peak)
            view.free.take(self.jobs[job], view.running[job], -1, view.part[job])

    def _too_much(self, job: int) -> bool:
        """Whether the jobs on a GPU of this one, or it alone on its slice, take more memory in truth than there is."""
        view, part = self.view, self.view.part[job]
        if isinstance(part, str):
            room = mig.find(view.free.kind_of[view.running[job][0]], part).memory or 0
            return max(self.jobs[job].memory, self.jobs[job].peak) > room
        for gpu in view.running[job]:
            there = [self.jobs[each] for each in view.on.get(gpu, [job])]
            if sum(max(each.memory, each.peak) for each in there) > view.free.all_memory[gpu]:
                return True
        return False

    def _count(self, job: int) -> None:
        """Its steps up to now."""
        now = self.view.now
        if now > self.counted[job]:
            self.steps[job] += (now - self.counted[job]) * self.speed[job]
            self.counted[job] = now

    def _go(self, job: int) -> None:
        """Counts its steps so far, and says when it ends at the speed that it has now."""
        self._count(job)
        rate = self._rate(job)
        self.speed[job] = rate
        self.starts[job] += 1
        if rate > 0.0:
            left = max(self.jobs[job].work - self.steps[job], 0.0)
            heapq.heappush(self.ends, (self.counted[job] + self._takes(job, left / rate), job, self.starts[job]))

    def _rate(self, job: int) -> float:
        gpus = self.view.running[job]
        rate = self.rates[job][self.view.free.kind_of[gpus[0]]] * self.shared.speed(job)
        return rate * self._pace(job, gpus) if self.jobs[job].elastic else rate

    def _pace(self, job: int, gpus: tuple[int, ...]) -> float:
        said = self.jobs[job]
        return self.view.pace(job, self.view.free.kind_of[gpus[0]], len(gpus)) if said.elastic else 1.0

    def _takes(self, job: int, seconds: float) -> float:
        """s until so much work is done."""
        return seconds

    def _restarts(self, said: ArrivingJob) -> float:
        return self.restart if math.isnan(said.restart) else said.restart

    def _resize(self, job: int, part: Part) -> None:
        """Another part of the same GPUs."""
        self._row(job)
        self._give(job, self.jobs[job])
        self.view.since[job] = self.view.now
        self._have(job, part)

    def _give(self, job: int, said: ArrivingJob) -> None:
        """Counts its steps, and takes its part away; others on the GPUs go on faster."""
        view = self.view
        gpus, part = view.running[job], view.part[job]
        self._count(job)
        view.free.take(said, gpus, 1, part)
        self.busy -= parts_of(said, part) * len(gpus)
        self.worked += (view.now - view.since[job]) * len(gpus) * parts_of(said, part) / WHOLE
        for other in () if is_whole(part) else self.shared.leave(job, gpus):
            self._go(other)

    def _row(self, job: int) -> None:
        """It had its GPUs until now."""
        view = self.view
        gpus = view.running[job]
        together = tuple(sorted(view.on.get(gpus[0], (job,))))
        since = min(max(view.since[job], view.started[job]), view.now)
        self.placed.append(PlacedJobs((job,), view.free.kind_of[gpus[0]], gpus, since, view.now, view.part[job], together))

    def _end(self, job: int, said: ArrivingJob) -> None:
        view = self.view
        self._row(job)
        self._give(job, said)
        del view.running[job], view.started[job], view.since[job], view.part[job]
        self.starts[job] += 1  # an end that is on the heap is no longer one

    def _move(self, job: int, gpus: tuple[int, ...]) -> None:
        """Goes on, after its restart, on these GPUs."""
        part = self.view.part[job]
        self._end(job, self.jobs[job])
        self.view.waiting[job] = None
        self.wants[self._class(job)] += 1
        self._start(job, gpus, part)

    def _grow(self) -> None:
        """Gives elastic jobs what is free while none waits, the oldest first."""
        view = self.view
        self.elastic = [job for job in self.elastic if math.isnan(self.end[job])]
        for job in self.elastic:
            gpus, said = view.running.get(job, ()), self.jobs[job]
            if not gpus or len(gpus) == said.gpus or not self._can_grow(job):
                continue
            kind = view.free.kind_of[gpus[0]]
            for size in said.sizes():
                if size <= len(gpus):
                    break
                more = view.free.place(replace(said, gpus=size - len(gpus)), [kind], "best")
                if more and view.pace(job, kind, size) > view.pace(job, kind, len(gpus)):
                    self._move(job, tuple(sorted((*gpus, *more))))
                    break

    def _can_grow(self, job: int) -> bool:
        return True

    def _stop(self, job: int, said: ArrivingJob | None = None) -> None:
        """said: how it was when it started."""
        self._end(job, said or self.jobs[job])
        self.stops += said is None
        self._wait(job)

    def _finish(self, job: int) -> None:
        view = self.view
        self._end(job, self.jobs[job])
        self.end[job], self.steps[job] = view.now, self.jobs[job].work
        self.left -= 1
        if self._left is not None:
            self._left(view, job)

    def _note(self) -> None:
        """What is in use from now on; what is idle though it would be enough for a job, and whether it lies apart."""
        view, idle, apart = self.view, 0, 0
        there = len(view.free.room) * WHOLE - view.free.away
        if view.waiting and self.busy < there:
            total = view.free.total
            enough = [each for each in self.wants if any(total[kind] >= each[0] * each[1] for kind in each[-1])]
            if enough:
                idle = there - self.busy
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
            jobs=tuple(self.jobs), cluster=self.cluster, scheduler=self.name, first=np.array(self.first),
            end=np.array(self.end), at=at, busy=busy, waiting=waiting, worked=self.worked, idle=idle, apart=apart,
            stops=self.stops, placed=tuple(self.placed), counts={"decisions": self.asked}, begun=self.begun,
            memory_failures=tuple(self.memory_failures),
        )  # fmt: skip

