"""Which iteration each event belongs to, as phases tell: "step3.fwd" and "step3.bwd" are one, "decode7" another."""

from __future__ import annotations

import re

import numpy as np

from gpusim.trace.trace import I64, PHASE, Trace

_NUMBERED = re.compile(r"\D*\d+")


def iterations(trace: Trace) -> I64:
    """(E,) the iteration of each event, counted from 0; -1 outside of any.  All 0 where no phase has a number."""
    names = [match.group() if (match := _NUMBERED.match(phase)) else "" for phase in trace.phases]
    marks = np.flatnonzero(trace.kind == PHASE)
    found = np.zeros(trace.events, np.int64)
    if not any(names[trace.arg[mark]] for mark in marks):
        return found
    found[:] = -1
    count, last = -1, ""
    for mark, following in zip(marks, [*marks[1:], trace.events], strict=True):
        name = names[trace.arg[mark]]
        if name and name != last:
            count += 1
        last = name
        found[mark:following] = count if name else -1
    return found
