"""What the metrics of a run come to at some moments of it: the list of `gpusim monitor`, for figures."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gpusim.results.activities import Activities
from gpusim.results.monitoring.clock import MetricsClock
from gpusim.results.monitoring.family import Family
from gpusim.results.monitoring.taken import samples
from gpusim.results.result import Result
from gpusim.trace.trace import Trace

MOMENTS = 480  # of a run, beside its end
CLOCK = "simulated_seconds"  # says only when the run ended


@dataclass(frozen=True, eq=False)
class MetricsOverTime:
    """Metrics at some moments of a run, equally far apart.

    at        (N,) simulated times, ns
    families  the metrics by name, those that are never anything but 0 left out
    curves    metric -> the values of its own labels in words ("" without any) -> (N,) what it comes to
    nothing   the names of those left out
    """

    at: npt.NDArray[np.int64]
    families: dict[str, Family]
    curves: dict[str, dict[str, npt.NDArray[np.float64]]]
    nothing: tuple[str, ...]


def metrics_over_time(run: Result, trace: Trace | None, rows: Activities, moments: int = MOMENTS) -> MetricsOverTime:
    """The metrics of a run with its log.  Raises ResultError for a run without times.

    trace  what the experiment named; None of a managed program
    rows   its activities
    """
    end = max(float(run.metrics.get("makespan_ns", 0)), 1.0)
    found = samples(run, trace, rows, MetricsClock(scale=moments / end * 1e9))
    curves = {
        name: {" ".join(own): values for own, values in of.items() if np.any(values)}
        for name, of in found.curves.items() if name != CLOCK and of
    }  # fmt: skip
    known = {name: of for name, of in curves.items() if of}
    return MetricsOverTime(
        found.at, {name: found.families[name] for name in known}, known, tuple(name for name in curves if name not in known)
    )
