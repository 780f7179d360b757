"""As finish_time_fairness_perf, with two jobs on the same GPUs where that is more."""

from __future__ import annotations

from gpusim.policies.jobs.finish_time_fairness_perf import LeastLate


def finish_time_fairness_packed() -> LeastLate:
    """The largest ratio of expected life to life with an equal part is made as small as can be; two jobs may share GPUs.

    Rates of pairs come from the table; speeds count over the job's weight.

    Source: Gavel's packing-aware finish-time fairness (Narayanan et al., OSDI 2020).
    """
    return LeastLate(pairs=True)
