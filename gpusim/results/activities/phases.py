"""Phases of the program as spans: as NVTX ranges on a timeline."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from gpusim.results.activities.rows import NONE, PHASE, table
from gpusim.trace.trace import I64, Trace


def rows(trace: Trace, ran: npt.NDArray[np.void], names: int, lane: int) -> npt.NDArray[np.void]:
    """A row for each stretch of operators of one phase: from its first start to that of the next, the last to its last end.

    ran    rows of operators and others, in any order
    names  the first phase's number among the names
    """
    operators = ran[ran["op"] >= 0]
    operators = operators[np.argsort(operators["op"], kind="stable")]
    phase = trace.phase[operators["op"]].astype(np.int64)
    phase[np.isin(phase, [i for i, name in enumerate(trace.phases) if not name])] = NONE
    return spans(phase, operators["start"], operators["end"], names, lane)


def spans(phase: I64, start: I64, end: I64, names: int, lane: int) -> npt.NDArray[np.void]:
    """The same of operators in the order of the program; of phase NONE they have no row."""
    if not len(phase):
        return table(0)
    first = np.flatnonzero(np.append(True, phase[1:] != phase[:-1]))
    begins = np.maximum.accumulate(np.minimum.reduceat(start, first))
    ends = np.append(begins[1:], max(int(end.max()), int(begins[-1])))
    named = (phase[first] >= 0) & (ends > begins)
    out = table(int(named.sum()))
    out["kind"], out["lane"], out["name"] = PHASE, lane, names + phase[first][named]
    out["start"], out["end"] = begins[named], ends[named]
    return out
