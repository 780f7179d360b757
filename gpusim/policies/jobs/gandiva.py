"""Jobs share GPUs two by two, by chance, and part where that is no gain."""

from __future__ import annotations

import random

from gpusim.policies.clusters import Shares, ShareView, Together
from gpusim.policies.jobs.isolated import equal_parts


class PairsByChance:
    """Jobs that share a GPU stay together until one ends or both together do less than one alone."""

    packs, shuffles, leftovers = True, False, True

    def __init__(self, seed: int) -> None:
        self._draws = random.Random(seed)
        self._with: dict[int, tuple[Together, int | None]] = {}

    def shares(self, view: ShareView) -> Shares:
        """Equal parts: of each job while all fit, else of each pair, and of those that have found no other."""
        self._part(view)
        if sum(view.job(job).gpus for job in view.jobs) <= sum(view.gpus.values()):
            return equal_parts(view, [(job,) for job in view.jobs])
        self._pair(view)
        return equal_parts(view, list(dict.fromkeys(together for together, _ in self._with.values())))

    def _part(self, view: ShareView) -> None:
        """Ends what has lost a partner or is no gain; a job alone is drawn again, too."""
        active, leave = set(view.jobs), []
        for job, (together, other) in self._with.items():
            gone = job not in active or (other is not None and other not in active)
            if gone or self._gain(view, together) < 1.0:
                leave += [job, other]
        for each in leave:
            if each is not None:
                self._with.pop(each, None)

    def _gain(self, view: ShareView, together: Together) -> float:
        """Rates together over rates alone, summed over both jobs and all types of GPU; 0: alone, or one cannot run."""
        if len(together) == 1:
            return 0.0
        total = 0.0
        for kind in sorted(view.gpus):
            for job, rate in zip(together, view.pair(together[0], together[1], kind), strict=True):
                if rate <= 0.0:
                    return 0.0
                total += rate / view.rate(job, kind)
        return total

    def _pair(self, view: ShareView) -> None:
        """Draws two of those without a partner, as often as there are such: with equal numbers of GPUs they share."""
        single = [job for job in view.jobs if job not in self._with]
        for _ in range(len(single)):
            if len(single) < 2:
                break
            a, b = self._draws.sample(single, 2)
            if view.job(a).gpus == view.job(b).gpus:
                single.remove(a)
                single.remove(b)
                together = (min(a, b), max(a, b))
                self._with[a], self._with[b] = (together, b), (together, a)
        for job in single:
            self._with[job] = ((job,), None)


def gandiva(seed: int = 0) -> PairsByChance:
    """Time sharing in equal parts; more jobs than GPUs share these two by two, drawn at random.

    seed  of the draws

    Source: Xiao et al., Gandiva: introspective cluster scheduling for deep learning, OSDI 2018, as Gavel's simulator reads it
    (Narayanan et al., OSDI 2020).
    """
    return PairsByChance(seed)
