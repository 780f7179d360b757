"""What a run did in time, a row each: kernels, copies, faults, stalls; the one table from which timelines are drawn.

    Result, Trace ─activities─▶ Activities

The rows come from the event log (of_log.py), of a run under unified memory from the log of its pages (of_pages.py); those of
ranks are put together (of_ranks.py).
"""

from __future__ import annotations

from gpusim.base.errors import ResultError
from gpusim.results.activities import of_log, of_pages, of_ranks
from gpusim.results.activities.rows import (
    GROUPS,
    KINDS,
    NONE,
    ROW,
    Activities,
    ActivityLane,
    Counter,
)
from gpusim.results.result import Result
from gpusim.trace.trace import Trace

__all__ = ["GROUPS", "KINDS", "NONE", "ROW", "Activities", "ActivityLane", "Counter", "activities"]


def activities(result: Result, trace: Trace | None) -> Activities:
    """The rows of one run.

    trace  the program that the experiment named; None where there is none, of managed programs; ranks keep their own
    Raises ResultError where no log was kept, where it is of another program, or does not say what streams waited for.
    """
    if result.ranks and result.logged:
        each = [of_log.read(rank, program) for rank in result.ranks if (program := rank.program) is not None]
        return of_ranks.together(each, programs=result.beside)
    if result.pages is not None:
        return of_pages.read(result, trace)
    if result.log is None:
        raise ResultError("the run kept no event log, from which a timeline is made", result.key, "run with --log")
    if trace is None:
        raise ResultError("an event log has only numbers of operators; their names are in the trace that ran", result.key)
    return of_log.read(result, trace)
