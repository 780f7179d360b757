"""The metrics over time of a cluster, which its own runs fill."""

from __future__ import annotations

from collections.abc import Iterable

from gpusim.results.monitoring.family import COUNTER, GAUGE, Curve, Family
from gpusim.results.monitoring.recorded import Recorded


def _of_runs(_: Recorded) -> Iterable[Curve]:
    return ()  # a run of one program has no cluster


_GROUP = "Cluster"
CLUSTER_FAMILIES: dict[str, Family] = {
    name: Family(name, kind, "seconds" if name.endswith("_seconds") else "", meaning, _GROUP, (), _of_runs)
    for name, kind, meaning in (
        ("cluster_jobs_waiting", GAUGE, "Jobs that have arrived and have no GPUs."),
        ("cluster_jobs_running", GAUGE, "Jobs that have GPUs."),
        ("cluster_jobs_arrived", COUNTER, "Jobs that have arrived."),
        ("cluster_jobs_ended", COUNTER, "Jobs that have ended."),
        ("cluster_deadlines_missed", COUNTER, "Jobs whose deadline has passed before their end."),
        ("cluster_memory_failures", COUNTER, "Starts that found less memory than the job takes."),
        ("cluster_gpus", GAUGE, "GPUs of the cluster."),
        ("cluster_gpus_in_use", GAUGE, "GPUs that jobs have, parts of them as parts."),
        ("cluster_gpus_wanted", GAUGE, "GPUs that jobs without GPUs want."),
        ("cluster_gpus_idle", GAUGE, "GPUs that are free although enough for a job that waits."),
        ("cluster_gpus_apart", GAUGE, "Of these, where no such job finds a place, since they lie apart."),
        ("cluster_gpus_away", GAUGE, "GPUs whose nodes have failed and are not back."),
        ("cluster_node_failures", COUNTER, "Nodes that have failed."),
        ("cluster_job_interruptions", COUNTER, "Runs of jobs that a failure has ended."),
        ("cluster_gpu_held_seconds", COUNTER, "Time of GPUs that jobs have had."),
        ("cluster_gpu_lost_seconds", COUNTER, "Of it, what was no work that counts: saved, restarted, hung, worked twice."),
    )
}
