"""What a recording writes down while the program runs, and the trace that it becomes at the end.

The tape keeps everything that happens on the GPU from the first moment on, since only later is it known what came before
the first step: building the model, filling it, moving it.  Of that only the tensors that were left are kept (`begin`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpusim.trace.build import TraceBuilder
from gpusim.trace.trace import ALLOC, FREE, KERNEL, OP, PHASE, SYNC, Trace
from gpusim.trace.waits import KEY as WAITS


@dataclass(frozen=True, slots=True)
class Operator:
    """One operator as issued; tensors by id, bytes as its views of them cover."""

    name: str
    reads: Sequence[int]
    writes: Sequence[int]
    read_bytes: int
    written_bytes: int
    flops: float
    dtype: str | None
    module: str | None
    activity: int = KERNEL
    takes_over: tuple[int, ...] = ()  # tensors that it would have written into without a dispatch mode
    shape: str | None = None  # as gpusim.trace.shapes has it


class Tape:
    """Events in the order of issue."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.category: list[str] = []  # by tensor; "" stands for the phase that makes it
        self.live_bytes = self.peak_bytes = 0
        self._freed: list[bool] = []
        self._before: list[int] = []  # tensors that existed before the recording, met later
        self._events: list[tuple[int, Any]] = []
        self._decides: set[str] = set()  # lines that wait for what a condition depends on
        self._start = 0

    def alloc(self, size: int, category: str = "", *, before: bool = False) -> int:
        """A new tensor; `before` says that it is older than the recording."""
        tensor = len(self.sizes)
        self.sizes.append(size)
        self.category.append(category)
        self._freed.append(False)
        self.live_bytes += size
        self.peak_bytes = max(self.peak_bytes, self.live_bytes)
        if before:
            self._before.append(tensor)
        else:
            self._events.append((ALLOC, tensor))
        return tensor

    def free(self, tensor: int) -> None:
        self._freed[tensor] = True
        self.live_bytes -= self.sizes[tensor]
        self._events.append((FREE, tensor))

    def op(self, operator: Operator) -> None:
        self._events.append((OP, operator))

    def phase(self, name: str) -> None:
        self._events.append((PHASE, name))

    def wait(self, line: str, what: str) -> None:
        """The host waits for the device at this line."""
        self._events.append((SYNC, (line, what)))

    def decide(self, lines: Iterable[str]) -> None:
        """A condition depends on what was waited for at these lines."""
        self._decides.update(lines)

    def begin(self) -> None:
        """The first step starts here: what ran until now was only to get there."""
        self._start = len(self._events)

    @property
    def operators(self) -> int:
        """How many operators were written down since `begin`."""
        return sum(kind == OP for kind, _ in self._events[self._start :])

    def issued(self) -> list[Operator]:
        """All operators, with those before `begin`."""
        return [what for kind, what in self._events if kind == OP]

    def trace(self, name: str, meta: Mapping[str, Any], rename: Mapping[str, str]) -> Trace:
        """The trace; `rename` gives phases their final names.  Raises TraceError."""
        build = TraceBuilder(name)
        build.meta = dict(meta)
        setup, events = self._events[: self._start], self._events[self._start :]
        same = _taken_over(events)
        for total, into in same.items():
            self.category[_root(into, same)] = self.category[total] or self.category[_root(into, same)]
        ids: dict[int, int] = {}

        gone = {what for kind, what in setup if kind == FREE}
        made = [what for kind, what in setup if kind == ALLOC]
        for tensor in sorted({*self._before, *made} - gone):
            ids[tensor] = build.alloc(self.sizes[tensor], self.category[tensor] or "input")
        kind_of_phase = "fwd"
        waits = list(dict.fromkeys(what for kind, what in events if kind == SYNC))
        if waits:
            build.meta[WAITS] = [{"line": line, "what": what, "decides": line in self._decides} for line, what in waits]
        for kind, what in events:
            if kind == ALLOC and what not in same:
                ids[what] = build.alloc(self.sizes[what], self.category[what] or kind_of_phase)
            elif kind == FREE and what not in same.values():
                build.free(ids[_root(what, same)])
            elif kind == PHASE:
                phase = rename.get(what, what)
                kind_of_phase = phase.rsplit(".", 1)[-1].rstrip("0123456789") or phase
                build.begin_phase(phase)
            elif kind == SYNC:
                build.event(SYNC, waits.index(what))
            elif kind == OP:
                build.op(
                    what.name,
                    [ids[_root(t, same)] for t in what.reads],
                    [ids[_root(t, same)] for t in what.writes],
                    read_bytes=what.read_bytes,
                    written_bytes=what.written_bytes,
                    flops=what.flops,
                    dtype=what.dtype,
                    module=what.module,
                    activity=what.activity,
                    shape=what.shape,
                )
        return build.finish()


def _root(tensor: int, same: Mapping[int, int]) -> int:
    while tensor in same:
        tensor = same[tensor]
    return tensor


def _taken_over(events: Sequence[tuple[int, Any]]) -> dict[int, int]:
    """tensor -> the older one that an unwatched program would have written into instead of making it.

    Autograd does so where it holds the last reference to the older one, which then dies as soon as the operator has run.
    """
    same: dict[int, int] = {}
    for at, (kind, what) in enumerate(events):
        if kind != OP or not what.takes_over:
            continue
        died = set()
        for following, freed in events[at + 1 :]:
            if following != FREE:
                break
            died.add(freed)
        into = next((tensor for tensor in what.takes_over if tensor in died), None)
        if into is not None:
            same[what.writes[0]] = into
    return same
