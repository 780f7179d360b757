"""Phases of the program as spans: as NVTX ranges on a timeline."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from gpusim.results.activities.rows import PHASE, table
from gpusim.trace.trace import Trace


def rows(trace: Trace, ran: npt.NDArray[np.void], names: int, lane: int) -> npt.NDArray[np.void]:
    """A row for each stretch of operators of one phase: from its first start to that of the next, the last to its last end.

    `op` is the first operator of the stretch.

    ran    rows of operators and others, in any order
    names  the first phase's number among the names
    """
    operators = ran[ran["op"] >= 0]
    operators = operators[np.argsort(operators["op"], kind="stable")]
    if not len(operators):
        return table(0)
    phase, start, end = trace.phase[operators["op"]], operators["start"], operators["end"]
    first = np.flatnonzero(np.append(True, phase[1:] != phase[:-1]))
    begins = np.maximum.accumulate(np.minimum.reduceat(start, first))
    ends = np.append(begins[1:], max(int(end.max()), int(begins[-1])))
    named = phase[first] >= 0  # before the first phase there is none
    out = table(int(named.sum()))
    out["kind"], out["lane"], out["name"] = PHASE, lane, names + phase[first][named]
    out["start"], out["end"], out["op"] = begins[named], ends[named], operators["op"][first[named]]
    return out
