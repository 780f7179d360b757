"""How a program's operators reached the device, as a trace's meta says it: `meta["submission"]`, else its format.

    eager   a framework like PyTorch asked for each as its turn came: the host needs that framework's time for every one
    graph   they were launched together, as a CUDA graph
    ""      one by one, by a compiled program, or it is not known

`meta["stream_priority"]` has the priorities of streams, {stream: whole number}: the lower goes first, as in CUDA, and a stream
that is not named has 0.

Recorded durations are those of kernels on the device.  What the host needed between them is in none of these, so that a
replay of recorded times takes the host's time as well.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from gpusim.base.errors import TraceError
from gpusim.trace.trace import Trace

KEY, PRIORITIES = "submission", "stream_priority"
EAGER, GRAPH = "eager", "graph"
_EAGER_FORMATS = ("record", "recorder", "kineto", "execution-trace")
"""Recordings of PyTorch, operator by operator; an importer that sees a graph says so."""


def submission(trace: Trace) -> str:
    """EAGER, GRAPH or ""."""
    said = trace.meta.get(KEY)
    if said in (EAGER, GRAPH):
        return str(said)
    return EAGER if trace.meta.get("format") in _EAGER_FORMATS else ""


def stream_priorities(trace: Trace) -> npt.NDArray[np.int64]:
    """(S,) priority of each stream up to the last that is used.  Raises TraceError for what is no priority."""
    found = np.zeros(int(trace.stream.max(initial=0)) + 1, np.int64)
    said = trace.meta.get(PRIORITIES, {})
    try:
        for stream, priority in said.items():
            if 0 <= int(stream) < len(found):
                found[int(stream)] = priority
    except (AttributeError, TypeError, ValueError, OverflowError):
        raise TraceError(f"the trace's meta['{PRIORITIES}'] is not {{stream: whole number}}", trace.name) from None
    return found
