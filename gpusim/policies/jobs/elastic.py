"""First come, first served, with as many GPUs as there are."""

from __future__ import annotations

from gpusim.policies.cluster_view import ClusterView
from gpusim.policies.clusters import Decision


def elastic(view: ClusterView) -> Decision:
    """Jobs start in the order in which they came; where one finds no place for all its GPUs, it begins with fewer.

    Where there is none for the fewest with which it goes on, a running job shrinks to make one: that which has most above its
    own fewest, by no more than it must.  Each move costs a restart.  Jobs without `least_gpus` start and stay as they are.
    """
    job = next(iter(view.waiting), None)
    if job is None:
        return None
    for size in view.job(job).sizes():
        if gpus := view.place(job, gpus=size):
            return job, gpus
    return _shrink(view, view.job(job).sizes()[-1], job)


def _shrink(view: ClusterView, wanted: int, job: int) -> Decision:
    """A running job on fewer of its GPUs, so that the other finds a place for so many."""
    free, above = view.free, []
    for other, gpus in view.running.items():
        fewest = view.job(other).sizes()[-1]
        if len(gpus) > fewest and free.works(gpus):
            above.append((fewest - len(gpus), other))
    for _, other in sorted(above):
        said, gpus = view.job(other), view.running[other]
        for size in said.sizes():
            if size >= len(gpus) or view.pace(other, free.kind_of[gpus[0]], size) <= 0.0:
                continue
            free.take(said, gpus[size:], 1)
            enough = bool(view.place(job, gpus=wanted))
            free.take(said, gpus[size:])
            if enough:
                return other, gpus[:size]
    return None
