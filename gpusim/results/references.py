"""A run against its references: the same program with memory for everything, under oracle eviction, under the best plan found.

References are runs of the same folder.  Its manifest says which are whose, before any of them begins; what they came to is
read from their results.  So a result is complete when its run ends, whichever of the others have ended by then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from gpusim.results.result import Result

# The run's makespan over that of the fastest of some references, which is the bound.
RATIOS = {"slowdown": "bound_no_limit_ns", "over_oracle": "bound_oracle_ns", "over_best_plan": "bound_best_plan_ns"}
Numbers = dict[str, int | float]  # by name
References = Mapping[str, Iterable[str]]  # bound -> keys of the runs, the fastest of which counts


def against(result: Result, references: References, makespan: Callable[[str], int | None]) -> Result:
    """The result with the makespans of its references among its bounds, and its ratios to them among its metrics.

    makespan  of the run with this key, ns; None where it is not there or did not finish
    """
    bounds, metrics = dict(result.bounds), dict(result.metrics)
    measure(bounds, metrics, result.finished, references, makespan)
    return replace(result, bounds=bounds, metrics=metrics)


def measure(
    bounds: Numbers, metrics: Numbers, finished: bool, references: References, makespan: Callable[[str], int | None]
) -> None:
    """Enter the same into the bounds and the metrics of a result."""
    for ratio, bound in RATIOS.items():
        times = [time for key in references.get(bound, ()) if (time := makespan(key)) is not None]
        if times:
            bounds[bound] = least = min(times)
            if least and finished and "makespan_ns" in metrics:
                metrics[ratio] = metrics["makespan_ns"] / least
