"""The metrics over time of a cluster: jobs that wait and run, GPUs in use, idle and apart, by scheduler."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from gpusim.engine.cluster.outcome import ClusterOutcome
from gpusim.results.monitoring.clock import MetricsClock, chosen
from gpusim.results.monitoring.cluster_families import CLUSTER_FAMILIES
from gpusim.results.monitoring.curves import F64
from gpusim.results.monitoring.samples import Samples
from gpusim.show.monitoring import openmetrics
from gpusim.studies.cluster.answer import ClusterAnswer


def text(found: ClusterAnswer, scale: float = 0.0) -> Iterator[str]:
    """Pieces of OpenMetrics text of all schedulers.  Raises GpusimError where the scale gives too many samples."""
    runs, spec = [each.outcome for each in found.runs], found.study.spec
    clock = clock_of(runs, scale)
    yield from openmetrics.text([samples_of(run, spec.arrivals, spec.gpus, clock) for run in runs])


def clock_of(runs: Iterable[ClusterOutcome], scale: float = 0.0) -> MetricsClock:
    """The clock for runs that are shown together."""
    return chosen(max(_ns(run, float(run.at[-1])) for run in runs), scale)


def samples_of(run: ClusterOutcome, arrivals: str, gpus: str, clock: MetricsClock) -> Samples:
    """Of one scheduler: what each metric comes to at each moment of the clock; 0 is the first arrival.

    arrivals, gpus  the words for jobs and cluster, which stand as `trace` and `profile`
    """
    at = clock.moments(_ns(run, float(run.at[-1])))
    now = at / 1e9 + run.jobs[0].arrival
    curves: dict[str, dict[tuple[str, ...], F64]] = {name: {(): values} for name, values in _curves(run, now).items()}
    identity = {"trace": arrivals, "profile": gpus, "policy": run.scheduler, "run": run.scheduler}
    seconds = np.array(clock.seconds(len(at)))
    return Samples(identity, {"jobs": str(len(run.jobs))}, seconds, at, clock, curves, CLUSTER_FAMILIES)


def _ns(run: ClusterOutcome, when: float) -> int:
    return max(round((when - run.jobs[0].arrival) * 1e9), 1)


def _curves(run: ClusterOutcome, now: F64) -> dict[str, F64]:
    row = np.clip(np.searchsorted(run.at, now, side="right") - 1, 0, len(run.at) - 1)
    over = now > run.at[-1]
    arrived, ended = _count(run.arrival, now), _count(run.end[~np.isnan(run.end)], now)
    deadline = run.arrival + np.array([job.deadline for job in run.jobs])
    late = np.where(np.isnan(run.end) | (run.end > deadline), deadline, np.inf)
    wants = np.array([job.gpus * job.share for job in run.jobs])
    changes = [(when, wants[i]) for i, when in enumerate(run.arrival.tolist())]
    for each in run.placed:
        if each.end > each.start:
            changes += [(each.start, -wants[job]) for job in each.jobs]
            changes += [(each.end, wants[job]) for job in each.jobs if not each.end >= run.end[job]]
    times, wanted = np.array(changes).T
    order = np.argsort(times, kind="stable")
    without = np.concatenate([[0.0], np.cumsum(wanted[order])])[np.searchsorted(times[order], now, side="right")]
    waiting = np.where(over, 0, run.waiting[row])
    found = {
        "cluster_jobs_waiting": waiting, "cluster_jobs_running": np.maximum(arrived - ended - waiting, 0),
        "cluster_jobs_arrived": arrived, "cluster_jobs_ended": ended, "cluster_deadlines_missed": _count(late, now),
        "cluster_memory_failures": _count(np.array(run.memory_failures), now),
        "cluster_gpus": np.full(len(now), run.cluster.gpus), "cluster_gpus_in_use": np.where(over, 0, run.busy[row]),
        "cluster_gpus_wanted": np.round(np.maximum(without, 0.0), 3),
    }  # fmt: skip
    for name, values in (("idle", run.idle), ("apart", run.apart)):
        if values is not None:
            found[f"cluster_gpus_{name}"] = np.where(over, 0, values[row])
    if (failed := run.failed) is not None:
        held = np.concatenate([[0.0], np.cumsum(run.busy[:-1] * np.diff(run.at))])
        found |= {
            "cluster_gpus_away": np.where(over, 0, failed.away[row]), "cluster_gpu_held_seconds": np.interp(now, run.at, held),
            "cluster_gpu_lost_seconds": failed.lost[row],
            "cluster_job_interruptions": _count(np.array(failed.interruptions), now),
            "cluster_node_failures": _count(np.array([each.start for each in failed.broken]), now),
        }  # fmt: skip
    return {name: np.asarray(values, np.float64) for name, values in found.items()}


def _count(times: F64, now: F64) -> F64:
    """How many of these times have come."""
    found: F64 = np.searchsorted(np.sort(times), now, side="right").astype(np.float64)
    return found
