"""What became of the jobs of a cluster; times in s."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from gpusim.policies.clusters import F64, I64, ArrivingJob, ClusterSpec, Part


class PlacedJobs(NamedTuple):
    """Jobs that ran together on the same GPUs for a while; GPUs by number, of one type.

    part   what they had of each of them: a share, or a MIG slice
    there  jobs on the first of them at the end, where that was shared
    """

    jobs: tuple[int, ...]
    kind: str
    gpus: tuple[int, ...]
    start: float
    end: float
    part: Part = 1.0
    there: tuple[int, ...] = ()


@dataclass(frozen=True)
class BrokenNode:
    """A node that was away, s; kind: of its failure."""

    node: int
    start: float
    end: float
    kind: str


@dataclass(frozen=True, kw_only=True)
class FailedJobs:
    """What failures have done to a cluster.

    broken         nodes that were away
    interruptions  when a failure ended a run of a job, s
    spent          s of GPUs that jobs had and that were no work that counts: saving, noticing, restarting, worked twice, slowed
    away, lost     from each time of `ClusterOutcome.at` on: GPUs whose nodes are away; s of GPUs of `spent` so far
    """

    broken: tuple[BrokenNode, ...]
    interruptions: tuple[float, ...]
    spent: dict[str, float]
    away: F64
    lost: F64


@dataclass(frozen=True, kw_only=True)
class ClusterOutcome:
    """One run.

    jobs, cluster, scheduler  what ran, where, and what decided
    first, end   s, of each job; nan: never (a job that could not run was given up)
    placed       which job ran where, from when to when
    at, busy, waiting   GPUs in use and jobs without GPUs from each time on; the last is the end of the run
    idle, apart  GPUs that are free from each time on although they would be enough for a job that waits; and those of them
                 where no such job finds a place, since they lie apart; None: rounds, which know no places
    worked       s of GPUs that jobs had
    stops        how often a job that ran had to leave before its end
    begun        how often a job has started; memory_failures: when one found less memory than it takes, s
    failed       what failures did; None: nothing can fail
    counts       what a kind of engine counts besides
    """

    jobs: tuple[ArrivingJob, ...]
    cluster: ClusterSpec
    scheduler: str
    first: F64
    end: F64
    at: F64
    busy: F64
    waiting: I64
    worked: float
    idle: F64 | None = None
    apart: F64 | None = None
    stops: int = 0
    begun: int = 0
    memory_failures: tuple[float, ...] = ()
    placed: tuple[PlacedJobs, ...] = ()
    failed: FailedJobs | None = None
    counts: dict[str, float] = field(default_factory=dict)

    @property
    def arrival(self) -> F64:
        return np.array([job.arrival for job in self.jobs], np.float64)

    @property
    def taken(self) -> F64:
        """s from arrival to end; nan: never done."""
        return self.end - self.arrival

    @property
    def waited(self) -> F64:
        """s from arrival until the job runs for the first time."""
        return self.first - self.arrival
