"""What must hold of jobs and a cluster before anything runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from gpusim.base.errors import GpusimError
from gpusim.base.text import join
from gpusim.base.units import show_bytes
from gpusim.policies.cluster_view import ClusterView
from gpusim.policies.clusters import ArrivingJob, ClusterSpec, JobRates


def checked_rates(jobs: Sequence[ArrivingJob], cluster: ClusterSpec, rates: JobRates) -> list[dict[str, float]]:
    """Steps/s of each job alone, by type of GPU, 0 where it may not run.

    Raises GpusimError for an arrival before the one before it, a job that no type of GPU can take, and a rate that is not in
    the table.
    """
    found, before = [], 0.0
    counts = {kind: cluster.count(kind) for kind in cluster.types}
    for number, job in enumerate(jobs):
        name = job.name or f"job {number}"
        if job.arrival < before:
            said = f"{name} arrives at {job.arrival:g} s, before the one above it ({before:g} s)"
            raise GpusimError(said, job.where, "sort the trace by arrival")
        before = job.arrival
        mine = {}
        for kind in cluster.types:
            if job.types and kind not in job.types:
                mine[kind] = 0.0
                continue
            rate = rates.of(job, kind)
            if rate is None:
                said = f"the table has no rate of '{job.model}' on {job.sized or job.gpus} {kind}"
                raise GpusimError(said, job.where, "leave the type of GPU or the job out, or add the row")
            mine[kind] = rate
        if not any(rate > 0.0 and counts[kind] >= job.gpus for kind, rate in mine.items()):
            large = [kind for kind, rate in mine.items() if not rate and (not job.types or kind in job.types)]
            if any(counts[kind] >= job.gpus for kind in large):
                where = " or ".join(large)
                said = f"{name} makes no steps of '{job.model}' on {where}: its memory is too small, or the table has 0"
                raise GpusimError(said, job.where, "a larger GPU, or a trace without the job")
            has = ", ".join(f"{count} {kind}" for kind, count in counts.items() if not job.types or kind in job.types)
            said = f"{name} wants {_gpus(job)} of one type; the cluster has {has or 'none that it may run on'}"
            raise GpusimError(said, job.where, "a larger cluster, or a trace without the job")
        found.append(mine)
    return found


def checked_whole(jobs: Sequence[ArrivingJob]) -> None:
    """Raises GpusimError for what rounds do not count: parts of a GPU, memory, processors."""
    for number, job in enumerate(jobs):
        if job.share != 1.0 or job.memory or job.peak or job.host or job.cpus:
            said = f"{job.name or f'job {number}'} asks for a part of a GPU, memory or processors, which rounds do not count"
            raise GpusimError(said, job.where, "a scheduler with places: first_come, best_fit")


def _gpus(job: ArrivingJob) -> str:
    return "1 GPU" if job.gpus == 1 else f"{job.gpus} GPUs"


def _beside(job: ArrivingJob) -> str:
    """What a job wants apart from GPUs."""
    wants = [f"{show_bytes(int(job.memory))} of GPU memory"] if job.memory else []
    wants += [f"{show_bytes(int(job.host))} of host memory"] if job.host else []
    wants += [f"{job.cpus:g} processors"] if job.cpus else []
    return f", with {join(wants)}" if wants else ""


def checked_places(jobs: Sequence[ArrivingJob], view: ClusterView) -> None:
    """Raises GpusimError for a job that finds no place on the empty cluster."""
    known: set[tuple[object, ...]] = set()
    for number, job in enumerate(jobs):
        kinds, name = view.kinds(number), job.name or f"job {number}"
        if job.peak > job.memory:
            job = replace(job, memory=job.peak)
        key = (job.gpus, job.share, job.memory, job.host, job.cpus, *kinds)
        if key in known:
            continue
        known.add(key)
        if not 0.0 < job.share <= 1.0 or (job.share < 1.0 and job.gpus != 1):
            said = f"{name} wants {job.share:g} of {_gpus(job)}"
            raise GpusimError(said, job.where, "a share from 0 to 1 of one GPU")
        if job.memory and any(node.memory == float("inf") for node in view.cluster.nodes if node.kind in kinds):
            said = f"{name} says what memory it takes, and nothing says how much the cluster's GPUs have"
            raise GpusimError(said, job.where, "name GPUs as `gpusim profiles` does, or leave the column out")
        if not view.free.place(job, kinds, "first"):
            said = f"{name} finds no place on the empty cluster: {_gpus(job)} of {' or '.join(kinds)}{_beside(job)}"
            raise GpusimError(said, job.where, "larger nodes, or a trace without the job")
