"""First come, first served, on GPUs of any type."""

from __future__ import annotations

import random

from gpusim.policies.clusters import Shares, ShareView


class FifoShares:
    """Each job has its GPUs from its turn to its end."""

    packs, shuffles, leftovers = False, True, False

    def __init__(self, seed: int) -> None:
        self._draws = random.Random(seed)
        self._given: dict[int, str] = {}

    def shares(self, view: ShareView) -> Shares:
        """The whole time to the jobs that have GPUs, and to those next in line that find some."""
        free, active = dict(view.gpus), set(view.jobs)
        queue = [job for job in view.jobs if job not in self._given]
        for job in sorted(self._given):
            kind = self._given[job]
            if job in active:
                free[kind] -= view.job(job).gpus
                continue
            if queue and view.job(queue[0]).gpus <= free[kind] and view.rate(queue[0], kind) > 0.0:
                after = queue.pop(0)
                self._given[after] = kind
                free[kind] -= view.job(after).gpus
            del self._given[job]
        self._more(view, queue, free)
        return {(job,): {kind: 1.0} for job, kind in self._given.items()}

    def _more(self, view: ShareView, queue: list[int], free: dict[str, int]) -> None:
        """The next in line.  Gavel draws a type, then gives the last that it looked at; the drawn one leaves the list."""
        open_kinds = [kind for kind in sorted(free) if free[kind] > 0]
        kind = open_kinds[-1] if open_kinds else ""
        while queue and open_kinds:
            job = queue.pop(0)
            wants, kind = view.job(job).gpus, open_kinds[-1]
            room = [i for i, each in enumerate(open_kinds) if free[each] >= wants]
            if not room:
                break
            drawn = self._draws.randrange(len(room))
            if view.rate(job, kind) > 0.0:
                self._given[job] = kind
                free[kind] -= wants
                if free[kind] == 0:
                    open_kinds.pop(room[drawn])


def fifo(seed: int = 0) -> FifoShares:
    """First come, first served, whatever the type of GPU: a job keeps its GPUs until it ends.

    seed  of the draws of a type

    Source: Gavel's baseline (Narayanan et al., Heterogeneity-aware cluster scheduling policies, OSDI 2020), as its simulator
    decides: a type of GPU is drawn among those with room, but the alphabetically last one that is open is given.
    """
    return FifoShares(seed)
