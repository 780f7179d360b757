"""From the words of a cluster and its jobs to runs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpusim.base.errors import GpusimError
from gpusim.base.units import TIME, parse
from gpusim.engine.cluster.events import EventRun
from gpusim.engine.cluster.measures import measures
from gpusim.engine.cluster.outcome import ClusterOutcome
from gpusim.engine.cluster.rounds import RoundRun
from gpusim.policies.clusters import ArrivingJob, ClusterSpec, JobRates
from gpusim.policies.forms import JobsPolicy
from gpusim.policies.registry import of
from gpusim.programs.arrivals.gavel import read_rates
from gpusim.programs.arrivals.words import cluster_of, jobs_of


@dataclass(frozen=True, kw_only=True)
class ClusterStudySpec:
    """A cluster and its jobs in words; see `gpusim cluster --help`."""

    gpus: str
    arrivals: str
    schedulers: tuple[Any, ...] = ("first_come",)
    rates: str = ""
    round: str = "360 s"
    restart: str = "0 s"
    seed: int = 0
    use: tuple[Any, ...] = ()
    base: Path | None = None


@dataclass(frozen=True)
class PreparedCluster:
    """The numbers; `cluster` is None where the number of nodes is searched for."""

    spec: ClusterStudySpec
    jobs: tuple[ArrivingJob, ...]
    rates: JobRates
    policies: tuple[JobsPolicy, ...]
    round: float
    restart: float

    def cluster(self, nodes: int = 0) -> ClusterSpec:
        """Of the words, with so many nodes in the place of a question mark."""
        return cluster_of(self.spec.gpus.replace("?", str(nodes)), self.spec.base)


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
    path = (spec.base or Path()) / spec.rates
    if spec.rates and not path.is_file():
        raise GpusimError(f"there is no table of rates '{spec.rates}'")
    jobs = tuple(jobs_of(spec.arrivals, spec.base))
    if not spec.rates and (models := [job for job in jobs if job.model]):
        said = f"{models[0].name} does steps of '{models[0].model}', and nothing says how fast"
        raise GpusimError(said, models[0].where, "--rates: a table as Gavel's simulation_throughputs.json")
    rates = read_rates(path) if spec.rates else JobRates()
    length, restart = _seconds("round", spec.round), _seconds("restart", spec.restart)
    if length <= 0.0:
        raise GpusimError("a round of 0 s does nothing", hint="--round '360 s'")
    return PreparedCluster(spec, jobs, rates, policies, length, restart)


def _seconds(name: str, word: str) -> float:
    try:
        return float(parse(word, TIME)) / 1e9
    except GpusimError as error:
        raise GpusimError(f"{name}: {error.message}", hint=error.hint) from None


def run(study: PreparedCluster, policy: JobsPolicy, cluster: ClusterSpec) -> ScheduledRun:
    """One scheduler on one cluster, in rounds or from event to event as the scheduler's verb asks."""
    scheduler = policy.scheduler()
    one: EventRun | RoundRun
    if scheduler.verb == "shares":
        if study.restart:
            said = f"{policy.spec} works in rounds, which stop and start jobs at no cost"
            raise GpusimError(said, hint="leave --restart out, or take a scheduler with places")
        one = RoundRun(
            study.jobs, cluster, study.rates, scheduler, name=policy.spec, seed=study.spec.seed, length=study.round,
            error=policy.error,
        )  # fmt: skip
    else:
        one = EventRun(
            study.jobs, cluster, study.rates, scheduler, name=policy.spec, restart=study.restart, error=policy.error
        )
    one.advance()
    outcome = one.outcome()
    return ScheduledRun(outcome, measures(outcome, study.rates))
