"""A replayed trace as a trace: what was evicted is freed there, what was run again is an operator with tensors of its own."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import numpy as np

from gpusim.policies.plan.parts.recompute.from_trace import Traced
from gpusim.policies.plan.parts.recompute.state import AGAIN, FIRST
from gpusim.trace.edit import Edit
from gpusim.trace.trace import ALLOC, FREE, OP, Trace


def rewrite(trace: Trace, traced: Traced, log: Any, warnings: Iterable[str] = ()) -> Trace:
    """The trace as the replay with this log (tables.EVENT) ran it.

    A tensor that can be recomputed is allocated right before the operator that makes it, anew each time.  What is run again
    is on the stream of what needs it.
    """
    script = _Script(trace, traced)
    for what, which, at in log.tolist():
        script.event = int(traced.event[at])
        if what not in (FIRST, AGAIN):
            script.leave(int(traced.unit[which]))
        elif traced.op[which] >= 0:
            (script.first if what == FIRST else script.again)(int(traced.op[which]))
    edit = script.edit()
    for warning in warnings:
        edit.warn(warning)
    return edit.finish()


class _Script:
    """The changes, collected in the order of the replay; `event` is where they go."""

    def __init__(self, trace: Trace, traced: Traced) -> None:
        self.trace, self.remade, self.event = trace, traced.remade.tolist(), 0
        self.stream = [*trace.stream.tolist(), 0]
        self.reads = _lists(trace.read_start, trace.read_id)
        self.writes = _lists(trace.write_start, trace.write_id)
        self.read_id = trace.read_id.copy()
        self.now = [-1 if again else t for t, again in enumerate(self.remade)]  # id under which each tensor is there
        self.copies: list[int] = []     # new tensors: of which
        self.like: list[int] = []       # new operators: of which
        self.new_reads: list[list[int]] = []
        self.new_writes: list[list[int]] = []
        self.inserted: list[tuple[int, int, int, int]] = []  # event, kind, tensor or operator, stream
        born = np.flatnonzero(trace.kind == ALLOC)
        self.born = dict(zip(trace.arg[born].tolist(), born.tolist(), strict=True))

    def first(self, o: int) -> None:
        start = self.trace.read_start[o]
        for i, t in enumerate(self.reads[o]):
            self.read_id[start + i] = self.now[t]
        for t in self._made(o):
            self.now[t] = t
            self._insert(ALLOC, t)

    def again(self, o: int) -> None:
        reads = [self.now[t] for t in self.reads[o]]
        copy = {t: self.trace.tensors + len(self.copies) + i for i, t in enumerate(self._made(o))}
        self.copies += copy
        for new in copy.values():
            self._insert(ALLOC, new)
        self._insert(OP, self.trace.ops + len(self.like))
        self.like.append(o)
        self.new_reads.append(reads)
        self.new_writes.append([copy[t] for t in self.writes[o]])
        for t, new in copy.items():
            if self.now[t] < 0:
                self.now[t] = new
            else:  # it was there all the time
                self._insert(FREE, new)

    def leave(self, t: int) -> None:
        if self.remade[t]:  # the frees of others stand in the trace
            self._insert(FREE, self.now[t])
            self.now[t] = -1

    def edit(self) -> Edit:
        edit, trace = Edit(self.trace), self.trace
        own = np.isin(trace.kind, (ALLOC, FREE))
        own[own] = np.array(self.remade)[trace.arg[own]]
        edit.drop_events(own)
        edit["read_id"][:] = self.read_id
        copies, like = np.array(self.copies, np.int64), np.array(self.like, np.int64)
        edit.add_tensors(trace.size[copies], trace.category[copies])
        edit.add_operators(_csr(self.new_reads), _csr(self.new_writes), like=like)
        edit.insert(*np.array(self.inserted, np.int64).reshape(-1, 4).T)
        return edit

    def _made(self, o: int) -> list[int]:
        """What the operator makes, in the order in which the program allocated it."""
        return sorted({t for t in self.writes[o] if self.remade[t]}, key=self.born.__getitem__)

    def _insert(self, kind: int, arg: int) -> None:
        self.inserted.append((self.event, kind, arg, self.stream[self.event]))


def _lists(start: Any, ids: Any) -> list[list[int]]:
    values = ids.tolist()
    return [values[a:b] for a, b in pairwise(start.tolist())]


def _csr(rows: list[list[int]]) -> tuple[Any, Any]:
    return np.array([len(r) for r in rows], np.int64), np.array([t for r in rows for t in r], np.int64)
