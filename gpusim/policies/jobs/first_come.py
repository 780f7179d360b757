"""First come, first served."""

from __future__ import annotations

from gpusim.policies.cluster_view import ClusterView
from gpusim.policies.clusters import Decision


def first_come(view: ClusterView) -> Decision:
    """Jobs start in the order in which they came; one that finds no place holds up all after it."""
    job = next(iter(view.waiting), None)
    if job is None or not (gpus := view.place(job)):
        return None
    return job, gpus
