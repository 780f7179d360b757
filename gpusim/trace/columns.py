"""Columns of a trace that compiled functions take together."""

from __future__ import annotations

from typing import Any, NamedTuple

from gpusim.trace.trace import Trace


class Events(NamedTuple):
    """What happens: E events."""

    kind: Any    # (E,)
    arg: Any     # (E,) the tensor or the operator
    stream: Any  # (E,)


class Accesses(NamedTuple):
    """What operator o reads and writes: rows start[o] .. start[o + 1] of the ids."""

    read_start: Any   # (O + 1,)
    read_id: Any
    write_start: Any  # (O + 1,)
    write_id: Any


def events(trace: Trace) -> Events:
    """The trace's own columns, no copies."""
    return Events(trace.kind, trace.arg, trace.stream)


def accesses(trace: Trace) -> Accesses:
    """The trace's own columns, no copies."""
    return Accesses(trace.read_start, trace.read_id, trace.write_start, trace.write_id)
