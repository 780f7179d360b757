"""Daly's interval for the failures that were seen."""

from __future__ import annotations

from gpusim.policies import intervals
from gpusim.policies.intervals import CheckpointView


def adaptive(view: CheckpointView, weight: float = 3.0) -> float:
    """Daly's interval for a mean time between interruptions that the run estimates itself.

    weight  interruptions that the rates known before count for: the estimate is (weight x their mean + time so far) over
            (weight + interruptions so far)
    """
    seen = (weight * view.between + view.elapsed) / (weight + view.interruptions)
    return max(intervals.daly(view.cost, seen), view.flush)
