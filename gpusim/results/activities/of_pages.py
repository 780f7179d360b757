"""Rows of a run under unified memory, from the log of its pages."""

from __future__ import annotations

from gpusim.base.errors import ResultError
from gpusim.results.activities.rows import Activities
from gpusim.results.result import Result
from gpusim.trace.trace import Trace


def read(result: Result, trace: Trace | None) -> Activities:
    raise ResultError("timelines of unified memory: to come", result.key)
