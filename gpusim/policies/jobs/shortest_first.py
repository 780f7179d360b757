"""The shortest job first."""

from __future__ import annotations

from gpusim.policies.cluster_view import ClusterView
from gpusim.policies.job_queues import JobQueues


def shortest_first(fill: int = 1) -> JobQueues:
    """Of the jobs that wait, the one that has the least left to do goes first; a job that runs is not stopped.

    It knows how long jobs take, which a real cluster has to guess.

    fill  1: where the shortest finds no place, the next that does; 0: all wait for it
    """
    return JobQueues(ClusterView.seconds, bool(fill))
