"""What must hold of jobs and a cluster before anything runs."""

from __future__ import annotations

from collections.abc import Sequence

from gpusim.base.errors import GpusimError
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
            has = ", ".join(f"{count} {kind}" for kind, count in counts.items() if not job.types or kind in job.types)
            said = f"{name} wants {job.gpus} GPUs of one type; the cluster has {has or 'none that it may run on'}"
            raise GpusimError(said, job.where, "a larger cluster, or a trace without the job")
        found.append(mine)
    return found
