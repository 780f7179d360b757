"""What a policy of kind `jobs` with the verb `place` may look at: what waits, what runs, what is free; times in s."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import replace

from gpusim.policies.cluster_state import FreeGpus
from gpusim.policies.clusters import ArrivingJob, ClusterSpec, JobRates, Part


class ClusterView:
    """The same object throughout a run; it always shows what is now.

    now      s
    waiting  numbers of the jobs that have arrived and have no GPUs, in the order in which they came or were stopped; those
             that lost their GPUs by a failure stand in front
    running  job -> its GPUs, by number
    started  job -> when its steps began; since: when it got its GPUs
    part     job that runs -> its share of each of its GPUs, or its MIG slice
    on       GPU -> the jobs that run on it, where it is not one job's alone
    cluster  nodes and types; free: what is free on them (`gpusim.policies.cluster_state.FreeGpus`)
    """

    def __init__(
        self, cluster: ClusterSpec, jobs: Sequence[ArrivingJob], rates: Sequence[Mapping[str, float]], steps: Sequence[float],
        tables: JobRates | None = None,
    ) -> None:  # fmt: skip
        self.now = 0.0
        self.waiting: OrderedDict[int, None] = OrderedDict()
        self.running: dict[int, tuple[int, ...]] = {}
        self.started: dict[int, float] = {}
        self.since: dict[int, float] = {}
        self.part: dict[int, Part] = {}
        self.on: dict[int, list[int]] = {}
        self.later = math.inf
        self.cluster, self.free = cluster, FreeGpus(cluster)
        self._jobs, self._rates, self._steps, self._tables = jobs, rates, steps, tables or JobRates()
        self._kinds: dict[tuple[tuple[str, float], ...], list[str]] = {}

    def job(self, job: int) -> ArrivingJob:
        """What the trace says of it."""
        return self._jobs[job]

    def kinds(self, job: int) -> list[str]:
        """Types of GPU that it can run on, the fastest first."""
        key = tuple(self._rates[job].items())
        if (found := self._kinds.get(key)) is None:
            mine = sorted(((rate, kind) for kind, rate in key if rate > 0.0), key=lambda each: -each[0])
            found = self._kinds[key] = [kind for _, kind in mine]
        return found

    def demand(self, job: int) -> tuple[object, ...]:
        """What it wants: where one of two jobs with equal demands finds no place, the other finds none either."""
        said = self._jobs[job]
        return said.gpus, said.share, said.memory, said.host, said.cpus, *self.kinds(job)

    def seconds(self, job: int) -> float:
        """That it needs from its last stop on, or from its start, on its fastest GPUs."""
        return (self._jobs[job].work - self._steps[job]) / self._rates[job][self.kinds(job)[0]]

    def ask_at(self, when: float) -> None:
        """Ask again at this time, s, though no job comes or ends; the earliest of several counts."""
        if when > self.now:
            self.later = min(self.later, when)

    def speeds(self, kind: str, there: Sequence[tuple[int, Part]]) -> tuple[float, ...]:
        """Of jobs that would share a GPU of this type, each with a part of it: their speeds over those alone on whole ones."""
        return self._tables.beside(kind, [(self._jobs[job], part) for job, part in there])

    def place(self, job: int, rule: str = "best", gpus: int = 0) -> tuple[int, ...]:
        """GPUs that are free for it now, on its fastest type that has some; (): there are none.

        rule  "first", "best" or "worst", as `FreeGpus.place` says
        gpus  so many instead of all that it wants (one of `job(job).sizes()`)
        """
        said = self._jobs[job]
        return self.free.place(replace(said, gpus=gpus) if gpus else said, self.kinds(job), rule)

    def pace(self, job: int, kind: str, gpus: int) -> float:
        """Of a job on so many GPUs of this type, over that on all it wants; 0: it does not run there."""
        return self._tables.pace(self._jobs[job], kind, gpus)
