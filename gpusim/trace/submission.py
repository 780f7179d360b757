"""How a program's operators reached the device, as a trace's meta says it: `meta["submission"]`, else its format.

    eager   a framework like PyTorch asked for each as its turn came: the host needs that framework's time for every one
    graph   they were launched together, as a CUDA graph
    ""      one by one, by a compiled program, or it is not known

Recorded durations are those of kernels on the device.  What the host needed between them is in none of these, so that a
replay of recorded times takes the host's time as well.
"""

from __future__ import annotations

from gpusim.trace.trace import Trace

KEY = "submission"
EAGER, GRAPH = "eager", "graph"
_EAGER_FORMATS = ("record", "recorder", "kineto", "execution-trace")
"""Recordings of PyTorch, operator by operator; an importer that sees a graph says so."""


def submission(trace: Trace) -> str:
    """EAGER, GRAPH or ""."""
    said = trace.meta.get(KEY)
    if said in (EAGER, GRAPH):
        return str(said)
    return EAGER if trace.meta.get("format") in _EAGER_FORMATS else ""
