"""First come, first served, each on the fastest GPUs that are free."""

from __future__ import annotations

from gpusim.policies.clusters import Shares, ShareView, Together


class FastestFirst:
    """Asked anew whenever jobs have come or gone: a job may move to faster GPUs."""

    packs, shuffles, leftovers = False, False, False

    def shares(self, view: ShareView) -> Shares:
        """The whole time on the fastest type with room, in order of arrival, until one finds none."""
        free, given = dict(view.gpus), dict[Together, dict[str, float]]()
        for job in view.jobs:
            wants = view.job(job).gpus
            room = [kind for kind in sorted(free) if free[kind] > 0 and free[kind] >= wants]
            if not room:
                break
            kind = max(room, key=lambda each: view.rate(job, each))
            if view.rate(job, kind) > 0.0:
                given[(job,)] = {kind: 1.0}
                free[kind] -= wants
        return given


def fifo_perf() -> FastestFirst:
    """First come, first served, each on the type of GPU where it runs fastest among those with room.

    Source: Gavel's heterogeneity-aware baseline (Narayanan et al., OSDI 2020).
    """
    return FastestFirst()
