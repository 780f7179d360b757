"""From the words of a cluster and its jobs to runs."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gpusim.base.errors import GpusimError
from gpusim.engine.cluster.events import EventRun
from gpusim.engine.cluster.failing import FailingCluster, FailingEventRun
from gpusim.engine.cluster.failing_rounds import FailingRoundRun
from gpusim.engine.cluster.measures import measures
from gpusim.engine.cluster.outcome import ClusterOutcome
from gpusim.engine.cluster.rounds import RoundRun
from gpusim.policies.clusters import ArrivingJob, ClusterSpec, JobRates
from gpusim.policies.forms import JobsPolicy
from gpusim.policies.registry import of
from gpusim.programs.arrivals.gavel import read_rates
from gpusim.programs.arrivals.words import cluster_of, jobs_of
from gpusim.studies.cluster.failing import ROUND, failing, seconds
from gpusim.studies.cluster.island import IslandRates, island


@dataclass(frozen=True, kw_only=True)
class ClusterStudySpec:
    """A cluster and its jobs in words; see `gpusim cluster --help`."""

    gpus: str
    arrivals: str
    schedulers: tuple[Any, ...] = ("first_come",)
    rates: str = ""
    round: str = "360 s"
    restart: str = "0 s"
    failures: str = ""
    every: str = ""
    save: str = "0 s"
    detect: str = "1 min"
    repair: str = "24 h"
    spare: str = ""
    seed: int = 0
    use: tuple[Any, ...] = ()
    base: Path | None = None


@dataclass(frozen=True)
class PreparedCluster:
    """The numbers.

    placed  the jobs with the memory of their programs, which schedulers with places count
    first   the cluster, with one node for a question mark
    """

    spec: ClusterStudySpec
    jobs: tuple[ArrivingJob, ...]
    placed: tuple[ArrivingJob, ...]
    first: ClusterSpec
    rates: JobRates
    policies: tuple[JobsPolicy, ...]
    round: float
    restart: float

    def cluster(self, nodes: int = 0) -> ClusterSpec:
        """Of the words, with so many nodes in the place of a question mark."""
        return cluster_of(self.spec.gpus.replace("?", str(nodes)), self.spec.base) if "?" in self.spec.gpus else self.first


@dataclass(frozen=True)
class ScheduledRun:
    """One scheduler on one cluster."""

    outcome: ClusterOutcome
    values: dict[str, float]


def prepare(spec: ClusterStudySpec) -> PreparedCluster:
    """Checks the words.  Raises GpusimError with the reason."""
    if not spec.schedulers:
        raise GpusimError("there is no scheduler", hint="gpusim policies jobs")
    registry = of(*spec.use)
    policies = tuple(registry.get("jobs", each) for each in spec.schedulers)
    jobs = tuple(jobs_of(spec.arrivals, spec.base))
    if not spec.rates and (models := [job for job in jobs if job.model]):
        said = f"{models[0].name} does steps of '{models[0].model}', and nothing says how fast"
        raise GpusimError(said, models[0].where, "--rates: a table as Gavel's simulation_throughputs.json, or island")
    cluster = cluster_of(spec.gpus.replace("?", "1"), spec.base)
    rates = _rates(spec, cluster)
    jobs = tuple(_in_steps(job, rates, cluster) if job.model else job for job in jobs)
    length, restart = seconds("round", spec.round), seconds("restart", spec.restart)
    _failing(spec, cluster)
    if length <= 0.0:
        raise GpusimError("a round of 0 s does nothing", hint="--round '360 s'")
    placed = jobs
    if isinstance(rates, IslandRates):
        placed = tuple(_with_memory(job, rates, cluster) if job.model else job for job in jobs)
    return PreparedCluster(spec, jobs, placed, cluster, rates, policies, length, restart)


def _rates(spec: ClusterStudySpec, cluster: ClusterSpec) -> JobRates:
    """None, those of a table, or simulated ones: never of both."""
    if not spec.rates:
        return JobRates()
    if (simulated := island(spec.rates, cluster, spec.base)) is not None:
        return simulated
    path = (spec.base or Path()) / spec.rates
    if not path.is_file():
        raise GpusimError(f"there is no table of rates '{spec.rates}'", hint="a JSON file, or island(sharing=mps)")
    return read_rates(path)


def _in_steps(job: ArrivingJob, rates: JobRates, cluster: ClusterSpec) -> ArrivingJob:
    """Work in steps where the trace says how long it takes alone on the fastest type."""
    if not job.timed:
        return job
    fastest = max((rates.of(job, kind) or 0.0 for kind in _kinds(job, cluster)), default=0.0)
    return replace(job, work=max(math.ceil(job.work * fastest), 1))


def _with_memory(job: ArrivingJob, rates: IslandRates, cluster: ClusterSpec) -> ArrivingJob:
    """The memory that its program takes: what it asks for where the trace does not say, and what it takes in truth."""
    needs = max((rates.needs(job, kind) for kind in _kinds(job, cluster)), default=0.0)
    return replace(job, memory=job.memory or needs, peak=max(job.peak, needs))


def _kinds(job: ArrivingJob, cluster: ClusterSpec) -> list[str]:
    return [kind for kind in cluster.types if not job.types or kind in job.types]


def _failing(spec: ClusterStudySpec, cluster: ClusterSpec) -> FailingCluster | None:
    return failing(
        cluster, failures=spec.failures, every=spec.every, save=spec.save, detect=spec.detect, repair=spec.repair,
        spare=spec.spare, round_=spec.round, seed=spec.seed, use=spec.use, base=spec.base,
    )  # fmt: skip


def run(study: PreparedCluster, policy: JobsPolicy, cluster: ClusterSpec) -> ScheduledRun:
    """One scheduler on one cluster, in rounds or from event to event as the scheduler's verb asks."""
    scheduler = policy.scheduler()
    breaks = _failing(study.spec, cluster)
    words: dict[str, Any] = {"name": policy.spec, "error": policy.error}
    one: EventRun | RoundRun
    if scheduler.verb == "shares":
        if study.restart:
            said = f"{policy.spec} works in rounds, which stop and start jobs at no cost"
            raise GpusimError(said, hint="leave --restart out, or take a scheduler with places")
        if study.spec.failures and (study.spec.every != ROUND or breaks is None or breaks.save):
            said = f"{policy.spec} works in rounds, at whose ends jobs save at no cost"
            raise GpusimError(said, hint="--every round without --save, or a scheduler with places")
        if breaks is not None and (slow := [kind.name for kind in breaks.kinds if kind.speed < 1.0 or kind.bytes]):
            said = f"{policy.spec} works in rounds, in which no job is slowed by {slow[0]}"
            raise GpusimError(said, hint="a scheduler with places, such as least_attained")
        words |= {"seed": study.spec.seed, "length": study.round}
        one = RoundRun(study.jobs, cluster, study.rates, scheduler, **words) if breaks is None else (
            FailingRoundRun(study.jobs, cluster, study.rates, scheduler, breaks, **words))  # fmt: skip
    elif breaks is None:
        one = EventRun(study.placed, cluster, study.rates, scheduler, restart=study.restart, **words)
    else:
        one = FailingEventRun(study.placed, cluster, study.rates, scheduler, breaks, restart=study.restart, **words)
    one.advance()
    outcome = one.outcome()
    return ScheduledRun(outcome, measures(outcome, study.rates))
