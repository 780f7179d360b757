"""Of which GPU a trace's recorded times are, as its meta says it.

    meta["recorded_on"]      a machine's name, or a GPU's product name as a profiler writes it: on another machine each time
                             is scaled by the ratio of the modelled times
    meta["recorded_factor"]  the times were multiplied by it, to be those of another GPU than the recording's
"""

from __future__ import annotations

from gpusim.trace.trace import Trace

ON, FACTOR = "recorded_on", "recorded_factor"


def recorded_on(trace: Trace) -> str:
    """The machine or product, "" where the meta does not say it, or where a factor has replaced it."""
    said = trace.meta.get(ON)
    return said if isinstance(said, str) and not recorded_factor(trace) else ""


def recorded_factor(trace: Trace) -> float:
    """By what the times were multiplied, 0 where they are as recorded."""
    said = trace.meta.get(FACTOR)
    return float(said) if isinstance(said, int | float) and said > 0 else 0.0
