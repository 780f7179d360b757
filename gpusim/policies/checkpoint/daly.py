"""Daly's interval."""

from __future__ import annotations

from gpusim.policies import intervals
from gpusim.policies.intervals import CheckpointView


def daly(view: CheckpointView) -> float:
    """The best interval for exponential failures, from a checkpoint's cost and the mean time between interruptions.

    Never shorter than a checkpoint needs to be safe, since the next one would wait for it.

    Source: Daly, A higher order estimate of the optimum checkpoint interval for restart dumps, Future Generation Computer
    Systems 22(3), 2006.
    """
    return max(intervals.daly(view.cost, view.between), view.flush)
