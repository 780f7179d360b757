"""When the rows of a run's timeline hold: on the device's clock, or where no times are known, at which event of the trace."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from gpusim.results.result import Result
from gpusim.show.view import scale

Floats = npt.NDArray[np.float64]


def rows(run: Result) -> int:
    """How many rows the timeline has."""
    return len(run.timeline.get("reserved_bytes", ()))


def timed(run: Result) -> bool:
    """Whether its rows have a time."""
    return "time_ns" in run.timeline


def moments(run: Result) -> Floats:
    """(rows,) ns of the device's clock, or of the only one there is; without times events of the trace."""
    if not timed(run):
        return np.linspace(0.0, float(run.metrics.get("events", rows(run))), rows(run) + 1)[1:]
    return np.asarray(run.timeline.get("device_ns", run.timeline["time_ns"]), np.float64)


def end(run: Result) -> float:
    """The last moment of the run; the host may be done before the device."""
    last = float(moments(run)[-1])
    return max(last, float(run.metrics.get("makespan_ns", 0))) if run.finished else last


def axis(runs: Sequence[Result], last: float) -> tuple[float, str]:
    """What moments are divided by up to `last`, and the label of their axis."""
    if not all(timed(run) for run in runs):
        return 1.0, "event of the program"
    divisor, unit = scale("ns", last)
    return divisor, f"time [{unit}]"
