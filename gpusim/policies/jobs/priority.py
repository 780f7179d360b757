"""The highest priority first; it takes GPUs from lower ones."""

from __future__ import annotations

from gpusim.policies.cluster_view import ClusterView
from gpusim.policies.clusters import Decision
from gpusim.policies.job_queues import JobQueues


class Preempting:
    """Queues of waiting jobs; running jobs are looked at when a job of higher priority finds no place."""

    def __init__(self) -> None:
        self._queues = JobQueues(lambda view, job: -view.job(job).priority, False)

    def arrived(self, view: ClusterView, job: int) -> None:
        """The job waits, new or stopped."""
        self._queues.arrived(view, job)

    def place(self, view: ClusterView) -> Decision:
        """Start the first; where it finds no place, stop one that is worth less and in its way."""
        if made := self._queues.place(view):
            return made
        job = self._queues.first()
        return None if job is None else self._stop(view, job)

    def _stop(self, view: ClusterView, job: int) -> Decision:
        """The youngest of the lowest priority, if all that are lower could make room."""
        said, kinds = view.job(job), set(view.kinds(job))
        lower = [
            (view.job(other).priority, -view.started[other], other)
            for other, gpus in view.running.items()
            if view.job(other).priority < said.priority and view.free.kind_of[gpus[0]] in kinds
        ]
        lower.sort()
        if not lower:
            return None
        victims = self._victims(view, job, [other for *_, other in lower])
        return (victims[0], ()) if victims else None

    def _victims(self, view: ClusterView, job: int, lower: list[int]) -> list[int]:
        """As few as are needed, tried in order: all are taken off in thought, and then those that need not go come back."""
        free, gone = view.free, []
        for other in lower:
            free.take(view.job(other), view.running[other], 1)
            gone.append(other)
            if view.place(job):
                break
        enough = bool(view.place(job))
        kept = []
        for other in gone[:-1]:  # the last is what made the place
            free.take(view.job(other), view.running[other])
            if view.place(job):
                kept.append(other)
            else:
                free.take(view.job(other), view.running[other], 1)
        victims = [other for other in gone if other not in kept]
        for other in victims:
            free.take(view.job(other), view.running[other])
        return victims if enough else []


def priority() -> Preempting:
    """The highest priority goes first, of equal ones the oldest; it stops the youngest of the lowest priorities where it must.

    A job that was stopped goes on later with what it had done.
    """
    return Preempting()
