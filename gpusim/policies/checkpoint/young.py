"""Young's interval."""

from __future__ import annotations

from gpusim.policies import intervals
from gpusim.policies.intervals import CheckpointView


def young(view: CheckpointView) -> float:
    """The square root of twice the checkpoint's cost times the mean time between interruptions.

    Source: Young, A first order approximation to the optimum checkpoint interval, Communications of the ACM 17(9), 1974.
    """
    return max(intervals.young(view.cost, view.between), view.flush)
