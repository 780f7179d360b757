"""Whether events and accesses of a trace are in order, in one compiled pass; `check` says what is not."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpusim.base.compiled import kept
from gpusim.trace.columns import Accesses, Events, accesses, events
from gpusim.trace.trace import ALLOC, EVENT_KINDS, FREE, OP, PHASE, Trace

_KINDS = len(EVENT_KINDS)


def sound(trace: Trace) -> bool:
    """True when each tensor is allocated once and freed at most once, operators are issued once, in order, in their phase,
    and touch only what is alive.  Columns must have the right lengths."""
    return bool(_sound(events(trace), accesses(trace), trace.phase, trace.tensors, len(trace.phases)))


@kept()
def _sound(events: Events, of: Accesses, phase: Any, tensors: int, phases: int) -> Any:
    alive, dead = np.uint8(1), np.uint8(2)
    state = np.zeros(tensors, np.uint8)
    issued, born, current = 0, 0, -1
    for e in range(events.kind.size):
        k, a = events.kind[e], events.arg[e]
        if k == OP:
            if a != issued or a >= phase.size or phase[a] != current:
                return False
            issued += 1
            for i in range(of.read_start[a], of.read_start[a + 1]):
                t = of.read_id[i]
                if t < 0 or t >= tensors or state[t] != alive:
                    return False
            for i in range(of.write_start[a], of.write_start[a + 1]):
                t = of.write_id[i]
                if t < 0 or t >= tensors or state[t] != alive:
                    return False
        elif k == ALLOC:
            if a < 0 or a >= tensors or state[a] != 0:
                return False
            state[a] = alive
            born += 1
        elif k == FREE:
            if a < 0 or a >= tensors or state[a] != alive:
                return False
            state[a] = dead
        elif k == PHASE:
            if a < 0 or a >= phases:
                return False
            current = a
        elif k >= _KINDS:
            return False
    return issued == phase.size and born == tensors
