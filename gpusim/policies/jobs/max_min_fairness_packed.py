"""As max_min_fairness_perf, with two jobs on the same GPUs where that is more."""

from __future__ import annotations

from gpusim.policies.jobs.max_min_fairness_perf import LeastSpeedMost


def max_min_fairness_packed() -> LeastSpeedMost:
    """The smallest speed of a job over its speed with an equal part is made as large as it can be; two may share GPUs.

    Rates of pairs come from the table.

    Source: Gavel's heterogeneity- and packing-aware least attained service (Narayanan et al., OSDI 2020).
    """
    return LeastSpeedMost(pairs=True)
