"""Jobs share GPUs two by two where both together are faster, and take turns where they are not."""

from __future__ import annotations

from gpusim.policies.cluster_view import ClusterView
from gpusim.policies.clusters import Decision


class PacksAndTurns:
    """In order of arrival on free GPUs; then beside a job that runs; then in the place of one that has run long enough."""

    def __init__(self, gain: float, turn: float) -> None:
        self._gain, self._turn = gain, turn
        self._next: list[Decision] = []
        self._lonely: list[int] = []  # jobs whose partner has left

    def left(self, view: ClusterView, job: int) -> None:
        """A partner has its GPUs alone again."""
        self._lonely += [other for other in view.running if view.part[other] == 0.5]

    def place(self, view: ClusterView) -> Decision:
        """What is decided already; then a job on free GPUs; then a pair; then a turn."""
        while self._lonely:
            job = self._lonely.pop()
            if job in view.running and view.part[job] == 0.5 and view.on[view.running[job][0]] == [job]:
                return job, view.running[job], 1.0
        if self._next:
            return self._next.pop(0)
        if not view.waiting:
            return None
        first = self._alike(view, list(view.waiting))
        for job in first:
            if gpus := view.place(job):
                return job, gpus
        return self._pair(view, first) or self._change(view, first)

    def _alike(self, view: ClusterView, jobs: list[int]) -> list[int]:
        """The first of those that want the same."""
        found: dict[tuple[object, ...], int] = {}
        for job in jobs:
            said = view.job(job)
            found.setdefault((said.model, said.gpus, said.share, said.memory, said.host, said.cpus, *view.kinds(job)), job)
        return list(found.values())

    def _pair(self, view: ClusterView, waiting: list[int]) -> Decision:
        """Two on the same GPUs, each with half of them: those that are fastest in sum over their speeds alone."""
        alone = [job for job in view.running if view.part[job] == 1.0 and view.job(job).model]
        best, most = None, self._gain
        for other in self._alike(view, alone):
            gpus = view.running[other]
            kind = view.free.kind_of[gpus[0]]
            for job in waiting:
                said = view.job(job)
                if said.gpus != len(gpus) or said.share != 1.0 or not said.model or kind not in view.kinds(job):
                    continue
                if not view.free.has_memory(said, gpus):
                    continue
                if (speed := sum(view.speeds(kind, ((other, 0.5), (job, 0.5))))) > most:
                    best, most = (other, job, gpus), speed
        if best is None:
            return None
        other, job, gpus = best
        self._next.append((job, gpus, 0.5))
        return other, gpus, 0.5

    def _change(self, view: ClusterView, waiting: list[int]) -> Decision:
        """The first in line in the place of the job with as many GPUs that has run longest, once it has had its turn."""
        if not self._turn:
            return None
        for job in waiting:
            kinds, size = set(view.kinds(job)), view.job(job).gpus
            rows = [
                (view.since[other], other) for other, gpus in view.running.items()
                if len(gpus) == size and view.part[other] == 1.0 and view.free.kind_of[gpus[0]] in kinds
            ]  # fmt: skip
            if not rows:
                continue
            since, other = min(rows)
            if view.now >= since + self._turn and view.free.has_memory(view.job(job), view.running[other], view.job(other)):
                self._next.append((job, view.running[other]))
                return other, ()
            view.ask_at(since + self._turn)
        return None


def packed(gain: float = 1.0, turn: float = 0.0) -> PacksAndTurns:
    """First come, first served on free GPUs; then two by two where they are faster in sum than one, each with half of the GPUs.

    Two are put together by their rates, of pairs in a table or simulated (--rates island); jobs without a model have none.

    gain  the least sum of both speeds, over those alone, for which two share
    turn  s after which a job gives its GPUs to one that waits; 0: jobs run to their end

    Source: after Xiao et al., Gandiva: introspective cluster scheduling for deep learning, OSDI 2018, which tries pairs out
    instead of knowing their rates, and moves jobs besides.
    """
    return PacksAndTurns(float(gain), float(turn))
