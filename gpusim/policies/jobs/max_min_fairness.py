"""The job that has least of the time has as much as can be."""

from __future__ import annotations

from gpusim.policies.jobs.max_min_fairness_perf import LeastSpeedMost


def max_min_fairness() -> LeastSpeedMost:
    """The smallest time of a job, times its GPUs and over its weight, is made as large as it can be; any GPU is as good.

    Source: least attained service without heterogeneity, Gavel's baseline (Narayanan et al., OSDI 2020).
    """
    return LeastSpeedMost(blind=True)
