"""Jobs share GPUs two by two where both together are faster, and take turns where they are not."""

from __future__ import annotations

from collections import deque

from gpusim.policies.cluster_view import ClusterView
from gpusim.policies.clusters import Decision

_Alike = tuple[object, ...]


class PacksAndTurns:
    """In order of arrival on free GPUs; then beside a job that runs; then in the place of one that has run long enough.

    Jobs that want the same wait in one line, and those that run alone and want the same are one kind of partner.
    """

    def __init__(self, gain: float, turn: float) -> None:
        self._gain, self._turn = gain, turn
        self._next: list[Decision] = []
        self._lines: dict[_Alike, deque[int]] = {}
        self._alone: dict[_Alike, dict[int, None]] = {}
        self._partner: dict[int, int] = {}
        self._lonely: list[int] = []  # jobs whose partner has left

    def arrived(self, view: ClusterView, job: int) -> None:
        """The job waits, new or stopped, at the end of its line."""
        self._lines.setdefault(_alike(view, job), deque()).append(job)

    def left(self, view: ClusterView, job: int) -> None:
        """A partner has its GPUs alone again."""
        self._alone.get(_alike(view, job), {}).pop(job, None)
        if (other := self._partner.pop(job, None)) is not None:
            del self._partner[other]
            self._lonely.append(other)

    failed = left  # it waits again, or its partner does

    def place(self, view: ClusterView) -> Decision:
        """What is decided already; then a job on free GPUs; then a pair; then a turn."""
        if self._lonely:
            job = self._lonely.pop()
            if job in view.running:
                self._runs_alone(view, job)
                return job, view.running[job], 1.0
        if self._next:
            return self._next.pop()
        waiting = sorted(line[0] for line in self._lines.values() if line)
        for job in waiting:
            if gpus := view.place(job):
                self._leaves_line(view, job)
                self._runs_alone(view, job)
                return job, gpus
        return self._pair(view, waiting) or self._change(view, waiting)

    def _leaves_line(self, view: ClusterView, job: int) -> None:
        alike = _alike(view, job)
        self._lines[alike].popleft()
        if not self._lines[alike]:
            del self._lines[alike]

    def _runs_alone(self, view: ClusterView, job: int) -> None:
        if view.job(job).share == 1.0:
            self._alone.setdefault(_alike(view, job), {})[job] = None

    def _pair(self, view: ClusterView, waiting: list[int]) -> Decision:
        """Two on the same GPUs, each with half of them: those that are fastest in sum over their speeds alone."""
        best, most = None, self._gain
        for partners in self._alone.values():
            other = next(iter(partners), None)
            if other is None or not view.job(other).model:
                continue
            gpus = view.running[other]
            if not view.free.works(gpus):
                continue
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
        del self._alone[_alike(view, other)][other]
        self._leaves_line(view, job)
        self._partner[other], self._partner[job] = job, other
        self._next.append((job, gpus, 0.5))
        return other, gpus, 0.5

    def _change(self, view: ClusterView, waiting: list[int]) -> Decision:
        """The first in line in the place of the job with as many GPUs that has run longest, once it has had its turn."""
        if not self._turn:
            return None
        for job in waiting:
            kinds, size = set(view.kinds(job)), view.job(job).gpus
            rows = [
                (view.since[other], other) for partners in self._alone.values() for other in partners
                if len(gpus := view.running[other]) == size and view.free.kind_of[gpus[0]] in kinds and view.free.works(gpus)
            ]  # fmt: skip
            if not rows:
                continue
            since, other = min(rows)
            gpus = view.running[other]
            if view.now >= since + self._turn and view.free.has_memory(view.job(job), gpus, view.job(other)):
                del self._alone[_alike(view, other)][other]
                self._leaves_line(view, job)
                self._runs_alone(view, job)
                self._next.append((job, gpus))
                return other, ()
            view.ask_at(since + self._turn)
        return None


def _alike(view: ClusterView, job: int) -> _Alike:
    return view.job(job).model, *view.demand(job)


def packed(gain: float = 1.0, turn: float = 0.0) -> PacksAndTurns:
    """First come, first served on free GPUs; then two by two where they are faster in sum than one, each with half of the GPUs.

    Two are put together by their rates, of pairs in a table or simulated (--rates island); jobs without a model have none.

    gain  the least sum of both speeds, over those alone, for which two share
    turn  s after which a job gives its GPUs to one that waits; 0: jobs run to their end

    Source: after Xiao et al., Gandiva: introspective cluster scheduling for deep learning, OSDI 2018, which tries pairs out
    instead of knowing their rates, and moves jobs besides.
    """
    return PacksAndTurns(float(gain), float(turn))
