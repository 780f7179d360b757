"""As finish_time_fairness_perf, with every type of GPU taken for the fastest."""

from __future__ import annotations

from gpusim.policies.jobs.finish_time_fairness_perf import LeastLate


def finish_time_fairness() -> LeastLate:
    """The largest ratio of expected life to life with an equal part is made as small as can be, as if all GPUs were alike.

    Every type counts as the one on which the jobs are fastest in sum; Gavel's simulator takes V100s.

    Source: finish-time fairness (Mahajan et al., Themis, NSDI 2020) as Gavel's baseline (Narayanan et al., OSDI 2020).
    """
    return LeastLate(blind=True)
