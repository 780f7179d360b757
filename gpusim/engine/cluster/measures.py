"""Numbers of a run on a cluster; times in s."""

from __future__ import annotations

import numpy as np

from gpusim.engine.cluster.outcome import ClusterOutcome
from gpusim.policies.clusters import F64, JobRates

PERCENTILES = (50, 90, 99)


def measures(run: ClusterOutcome, rates: JobRates) -> dict[str, float]:
    """The numbers by name; nan where there is nothing to count.

    jct, wait    mean and percentiles of the time from arrival to end, and to the first run, of jobs that ended
    makespan_s   from the first arrival to the last end
    utilisation  of the time of all GPUs, the share in which jobs had them; memory_, host_utilisation: of their bytes
    work_done    the work of jobs that ended, in the time of GPUs that it takes alone on the fastest type, over the time of all
                 GPUs: above `utilisation` where sharing pays
    out_of_memory  share of the starts that found less memory than the job takes in truth
    idle         of the time of all GPUs, the share in which they were free though enough for a job that waited
    apart        of it, where none of these jobs found a place since free GPUs lay apart: fragmentation
    slowdown     mean time over the time alone on the fastest GPUs of the cluster
    unfairness   mean and largest time over the time that the job would have with its equal part of the cluster: its time alone
                 times the mean number of jobs that are there during its life, times its GPUs over all (Themis' finish-time
                 fairness, Mahajan et al., NSDI 2020); 1 at least is taken for the parts
    missed       share of the jobs with a deadline that missed it
    Where nodes and jobs can fail:
    goodput      of the time of GPUs that jobs had, the share that was work that counts
    lost_gpu_h   h of GPUs of the rest; lost_saving_gpu_h, lost_noticing_gpu_h, lost_restarting_gpu_h, lost_worked_twice_gpu_h
    away         of the time of all GPUs, the share in which their nodes were away
    failures     nodes that failed; interruptions: runs of jobs that a failure ended
    """
    taken, done = run.taken, ~np.isnan(run.end)
    found: dict[str, float] = {"jobs": len(run.jobs), "ended": int(done.sum()), "stops": run.stops}
    for name, values in (("jct", taken[done]), ("wait", run.waited[done])):
        found[f"{name}_mean_s"] = float(np.mean(values)) if len(values) else np.nan
        for share in PERCENTILES:
            found[f"{name}_p{share}_s"] = float(np.percentile(values, share)) if len(values) else np.nan
    begin, end = float(run.at[0]), float(run.at[-1])
    found["makespan_s"] = span = end - begin
    found["gpus"] = run.cluster.gpus
    steps = np.diff(run.at)
    for name, free in (("idle", run.idle), ("apart", run.apart)):
        if free is not None and span > 0:
            found[name] = float(np.dot(free[:-1], steps)) / span / run.cluster.gpus
    if span > 0:
        found["utilisation"] = run.worked / span / run.cluster.gpus
        found |= _memory(run, span)
    alone = _alone(run, rates)
    parts = np.array([job.gpus * job.share for job in run.jobs])
    if span > 0:
        found["work_done"] = float(np.dot(alone[done], parts[done])) / span / run.cluster.gpus
    if any(job.peak for job in run.jobs) and run.begun:
        found["out_of_memory"] = len(run.memory_failures) / run.begun
    found["slowdown"] = float(np.mean(taken[done] / alone[done])) if done.any() else np.nan
    found |= _fairness(run, alone, done)
    found |= _failures(run, span)
    limits = np.array([job.deadline for job in run.jobs])
    if (limited := np.isfinite(limits)).any():
        found["missed"] = float(np.mean(~(taken[limited] <= limits[limited])))
    return found


def _alone(run: ClusterOutcome, rates: JobRates) -> F64:
    """s of each job on the fastest type that has room for it."""
    counts = {kind: run.cluster.count(kind) for kind in run.cluster.types}
    found = []
    for job in run.jobs:
        kinds = [kind for kind in counts if counts[kind] >= job.gpus and (not job.types or kind in job.types)]
        found.append(job.work / max(rates.of(job, kind) or 0.0 for kind in kinds))
    return np.array(found)


def _fairness(run: ClusterOutcome, alone: F64, done: np.ndarray) -> dict[str, float]:
    if not done.any():
        return {"unfairness_mean": np.nan, "unfairness_max": np.nan}
    arrival, end = run.arrival[done], run.end[done]
    times = np.concatenate([run.arrival, end])
    change = np.concatenate([np.ones(len(run.jobs)), -np.ones(len(end))])
    order = np.argsort(times, kind="stable")
    times, there = times[order], np.cumsum(change[order])
    area = np.concatenate([[0.0], np.cumsum(there[:-1] * np.diff(times))])  # job seconds up to each time

    def up_to(at: F64) -> F64:
        i = np.searchsorted(times, at, side="right") - 1
        found: F64 = area[i] + there[i] * (at - times[i])
        return found

    life = end - arrival
    with np.errstate(divide="ignore", invalid="ignore"):
        many = np.where(life > 0, (up_to(end) - up_to(arrival)) / life, 1.0)
    parts = np.array([job.gpus * job.share for job in run.jobs])[done] / run.cluster.gpus
    rho = life / (alone[done] * np.maximum(1.0, many * parts))
    return {"unfairness_mean": float(np.mean(rho)), "unfairness_max": float(np.max(rho))}


def _memory(run: ClusterOutcome, span: float) -> dict[str, float]:
    """Of GPUs and of hosts, where the cluster says how much there is and jobs say what they take."""
    found, nodes, jobs = {}, run.cluster.nodes, run.jobs
    on_gpus, on_hosts = sum(node.memory * node.gpus for node in nodes), sum(node.host for node in nodes)
    if np.isfinite(on_gpus) and any(job.memory for job in jobs):
        used = sum(jobs[each.jobs[0]].memory * len(each.gpus) * (each.end - each.start) for each in run.placed)
        found["memory_utilisation"] = used / on_gpus / span
    if np.isfinite(on_hosts) and any(job.host for job in jobs):
        used = sum(jobs[each.jobs[0]].host * (each.end - each.start) for each in run.placed)  # of jobs on one node
        found["host_utilisation"] = used / on_hosts / span
    return found


def _failures(run: ClusterOutcome, span: float) -> dict[str, float]:
    failed = run.failed
    if failed is None:
        return {}
    lost = sum(failed.spent.values())
    found: dict[str, float] = {"failures": len(failed.broken), "interruptions": len(failed.interruptions)}
    if run.worked > 0.0:
        found["goodput"] = 1.0 - lost / run.worked
    found["lost_gpu_h"] = lost / 3600.0
    found |= {f"lost_{name.replace(' ', '_')}_gpu_h": seconds / 3600.0 for name, seconds in failed.spent.items()}
    if span > 0.0:
        found["away"] = float(np.dot(failed.away[:-1], np.diff(run.at))) / span / run.cluster.gpus
    return found
