"""Jobs that share a GPU: which, and how fast each is beside the others."""

from __future__ import annotations

from collections.abc import Iterable

from gpusim.policies.cluster_state import WHOLE
from gpusim.policies.cluster_view import ClusterView
from gpusim.policies.clusters import JobRates, Part

_Alike = tuple[object, ...]


class SharedGpus:
    """Of GPUs with parts of jobs: the jobs, in the order in which they came."""

    def __init__(self, view: ClusterView, rates: JobRates) -> None:
        self._view, self._rates = view, rates
        self._known: dict[_Alike, tuple[float, ...]] = {}

    def enter(self, job: int, gpus: tuple[int, ...]) -> set[int]:
        """The job has come onto these GPUs: the others that are on them."""
        return self._others(job, gpus, True)

    def leave(self, job: int, gpus: tuple[int, ...]) -> set[int]:
        """The job has gone: the others that are on them."""
        return self._others(job, gpus, False)

    def _others(self, job: int, gpus: tuple[int, ...], comes: bool) -> set[int]:
        on, found = self._view.on, set[int]()
        for gpu in gpus:
            there = on.setdefault(gpu, []) if comes else on.get(gpu, [])
            found.update(other for other in there if other != job)
            if comes and job not in there:
                there.append(job)
            elif not comes and job in there:
                there.remove(job)
                if not there:
                    del on[gpu]
        return found

    def speed(self, job: int) -> float:
        """Of a job that runs, over its speed alone on whole GPUs: on that of its GPUs where it is slowest."""
        view = self._view
        if is_whole(view.part[job]):
            return 1.0
        gpus = view.running[job]
        kind, slowest = view.free.kind_of[gpus[0]], 1.0
        seen: set[tuple[int, ...]] = set()
        for gpu in gpus:
            there = tuple(view.on[gpu])
            if there in seen:
                continue
            seen.add(there)
            slowest = min(slowest, self._speeds(kind, there)[there.index(job)])
        return slowest

    def _speeds(self, kind: str, there: Iterable[int]) -> tuple[float, ...]:
        said = [(self._view.job(job), self._view.part[job]) for job in there]
        alike = (kind, *((job.model, job.gpus, job.sized, part) for job, part in said))
        if (found := self._known.get(alike)) is None:
            found = self._known[alike] = self._rates.beside(kind, said)
        return found


def is_whole(part: Part) -> bool:
    """Whether it is all of a GPU."""
    return not isinstance(part, str) and round(part * WHOLE) >= WHOLE
