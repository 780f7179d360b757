"""The jobs that have had least go first, in turns: max-min fairness over time."""

from __future__ import annotations

from gpusim.policies.cluster_view import ClusterView
from gpusim.policies.clusters import Decision


class LeastAttained:
    """Keeps the GPU seconds that each job has had, over its weight."""

    def __init__(self, turn: float) -> None:
        self._turn, self._had = turn, dict[int, float]()
        self._stop: list[int] = []
        self._when = -1.0

    def arrived(self, view: ClusterView, job: int) -> None:
        """The job waits, new or stopped."""
        self._had.setdefault(job, 0.0)

    def left(self, view: ClusterView, job: int) -> None:
        """The job has ended."""
        del self._had[job]

    def failed(self, view: ClusterView, job: int) -> None:
        """A failure takes its GPUs."""
        self._had[job] += self._since(view, job)

    def place(self, view: ClusterView) -> Decision:
        """Stops jobs whose turn is over for those that have had less; then starts those that have had least."""
        if view.waiting and view.now != self._when:
            self._when = view.now
            self._stop = self._over(view)
        while self._stop:
            job = self._stop.pop()
            if job in view.running:
                self._had[job] += self._since(view, job)
                return job, ()
        tried: set[tuple[object, ...]] = set()
        for job in sorted(view.waiting, key=lambda each: (self._had[each], each)):
            alike = view.demand(job)
            if alike not in tried and (gpus := view.place(job)):
                return job, gpus
            tried.add(alike)
        if view.waiting and view.running:
            view.ask_at(view.now + self._turn)
        return None

    def _since(self, view: ClusterView, job: int) -> float:
        said = view.job(job)
        return (view.now - view.since[job]) * said.gpus * said.share / said.weight

    def _over(self, view: ClusterView) -> list[int]:
        """Jobs that run and would not be among those for which there are GPUs, in order of what each has had."""
        had = {job: self._had[job] for job in view.waiting}
        had |= {job: self._had[job] + self._since(view, job) for job in view.running}
        room = dict(view.free.total)
        for gpus in view.running.values():
            room[view.free.kind_of[gpus[0]]] += len(gpus) * 1000
        stay: set[int] = set()
        for job in sorted(had, key=lambda each: (had[each], each in view.waiting, each)):
            wants = view.job(job).gpus * 1000
            kind = next((kind for kind in view.kinds(job) if room[kind] >= wants), None)
            if kind is not None:
                room[kind] -= wants
                stay.add(job)
        over = [job for job in view.running if job not in stay]
        for job in over:
            view.ask_at(view.since[job] + self._turn)
        return [job for job in over if view.now >= view.since[job] + self._turn]


def least_attained(turn: float = 360.0) -> LeastAttained:
    """The jobs that have had the fewest GPU seconds over their weight run; one that has had more gives way after its turn.

    turn  s that a job keeps its GPUs at least

    Source: max-min fairness in time; least attained service as in Gu et al., Tiresias, NSDI 2019, without its queues.
    """
    return LeastAttained(float(turn))
