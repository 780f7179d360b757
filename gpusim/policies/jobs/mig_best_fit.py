"""Jobs in MIG slices: each in the smallest that is enough, where least is left over."""

from __future__ import annotations

from functools import cache

from gpusim.base.errors import PolicyError
from gpusim.base.units import show_bytes
from gpusim.machine import mig
from gpusim.policies.cluster_view import ClusterView
from gpusim.policies.clusters import ArrivingJob, Decision

_Lying = tuple[tuple[str, int], ...]


class SlicesBestFit:
    """In order of arrival; others may pass a job that finds no place."""

    def place(self, view: ClusterView) -> Decision:
        """The first of each kind of demand, in order of arrival."""
        tried: set[tuple[object, ...]] = set()
        for job in view.waiting:
            alike = view.demand(job)
            if alike in tried:
                continue
            tried.add(alike)
            if made := self._slice(view, job) if view.job(job).share < 1.0 else self._whole(view, job):
                return made
        return None

    def _whole(self, view: ClusterView, job: int) -> Decision:
        gpus = view.place(job)
        return (job, gpus) if gpus else None

    def _slice(self, view: ClusterView, job: int) -> Decision:
        """On the GPU whose slices leave least; one that is whole where no other has room.  PolicyError where none is enough."""
        free, said, best = view.free, view.job(job), (mig.SEVENTHS + 1, -1, "")
        if not any(smallest(kind, said.share, said.memory) for kind in view.kinds(job)):
            name, memory = said.name or f"job {job}", f" with {show_bytes(int(said.memory))}" if said.memory else ""
            wants = f"{name} wants {said.share:g} of a GPU{memory}, and no MIG slice of {' or '.join(view.kinds(job))} has that"
            raise PolicyError(wants, said.where, "best_fit, without MIG")
        for kind in view.kinds(job):
            name = smallest(kind, said.share, said.memory)
            if not name:
                continue
            for gpu, lying in free.slices.items():
                if lying and free.kind_of[gpu] == kind and _fits(kind, tuple(sorted(lying)), name):
                    left = mig.SEVENTHS - sum(mig.sevenths(other) for other, _ in lying)
                    if (left, gpu) < best[:2] and not free.why_not(said, (gpu,), name):
                        best = left, gpu, name
            if best[1] >= 0:
                return job, (best[1],), best[2]
            if gpus := free.place(ArrivingJob(host=said.host, cpus=said.cpus), [kind], "best"):
                return job, gpus, name
        return None


@cache
def smallest(kind: str, share: float, memory: float) -> str:
    """The slice with the fewest sevenths of the GPU, then the least memory, that is enough; "": there is none."""
    offered = [one for one in mig.slices(kind).values() if one.memory and one.processors]
    sizes = [(mig.sevenths(one.name), one.memory or 0, one.name) for one in offered]
    enough = [each for each in sizes if each[0] >= share * mig.SEVENTHS - 1e-9 and each[1] >= memory]
    return min(enough)[2] if enough else ""


@cache
def _fits(kind: str, lying: _Lying, name: str) -> bool:
    return mig.beside(kind, lying, name) is not None


def mig_best_fit() -> SlicesBestFit:
    """A job that wants part of a GPU has the smallest MIG slice with that share of the sevenths and its memory.

    It goes where least of a GPU is left; a GPU is cut when all others are full.  Slices lie as `nvidia-smi` allows it and stay.
    A job that wants a whole GPU has one that is not cut.
    """
    return SlicesBestFit()
