"""The workload: a trace made ready to simulate, with dense accesses, next uses and a program clock."""

from __future__ import annotations

from collections.abc import Callable, Hashable, MutableMapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
import numpy.typing as npt

from gpusim.base.compiled import kept
from gpusim.trace.trace import ALLOC, FREE, Trace

I64 = npt.NDArray[np.int64]
F64 = npt.NDArray[np.float64]

ROUND = 512  # bytes: every allocator that we know rounds to at least this
SMALL, KEPT = 1 << 20, 16  # events of a workload that keeps what its runs share between them, and so many arrays


@dataclass(frozen=True)
class Workload:
    """A trace bound to kernel durations.  O operators, A accesses (each tensor once per operator), T tensors.

    The *program clock* is the time of the same run without any stall: operator o starts at clock[o].
    """

    trace: Trace
    duration: I64                      # (O,) ns
    clock: F64                         # (O,) ns
    acc_start: I64                     # (O + 1,)
    acc_unit: I64                      # (A,) tensors in the order read, then written
    acc_write: npt.NDArray[np.uint8]   # (A,) 1 when the operator writes the tensor
    acc_next: F64                      # (A,) clock of the tensor's next access, inf when there is none
    first: F64                         # (T,) clock of the first access, inf when there is none
    has_data: npt.NDArray[np.uint8]    # (T,) 1 when the tensor is read before anything wrote it: it came with data

    @cached_property
    def _made(self) -> MutableMapping[Hashable, Any]:
        return {} if len(self.trace.kind) < SMALL else WeakValueDictionary()

    def shared(self, name: Hashable, make: Callable[[], Any]) -> Any:
        """An array of this name that runs of the workload only read: made once; of a large one, as long as a run holds it."""
        array = self._made.get(name)
        if array is None:
            if len(self._made) >= KEPT:  # of many machines that differ in it
                self._made.clear()
            self._made[name] = array = make()
        return array

    @cached_property
    def _peaks(self) -> tuple[int, int]:
        return _live_peaks(self.trace.kind, self.trace.arg, self.trace.size)  # type: ignore[no-any-return]

    @property
    def live_peak(self) -> int:
        """Footprint: the most bytes alive at once, each tensor rounded up to 512, before any allocator."""
        return int(self._peaks[0])

    @property
    def max_live(self) -> int:
        """The most tensors alive at once."""
        return int(self._peaks[1])

    @cached_property
    def widest_operator(self) -> tuple[int, int]:
        """(bytes, operator): the most that one operator touches, which no policy can do without."""
        if not len(self.duration):
            return 0, -1
        rounded = -(-self.trace.size // ROUND) * ROUND
        touched = np.add.reduceat(
            np.append(rounded[self.acc_unit], 0), np.minimum(self.acc_start[:-1], len(self.acc_unit))
        )
        touched[np.diff(self.acc_start) == 0] = 0
        widest = int(touched.argmax())
        return int(touched[widest]), widest


def build(trace: Trace, duration: I64) -> Workload:
    """Bind a valid trace to durations (ns, one per operator)."""
    acc_start, acc_unit, acc_write = _accesses(
        trace.read_start, trace.read_id, trace.write_start, trace.write_id, len(trace.size)
    )
    duration = np.array(duration, np.int64)  # a copy: kernels take no read-only arrays
    clock = np.zeros(len(duration))
    np.cumsum(duration[:-1], out=clock[1:])
    acc_next, first, has_data = _next_uses(acc_start, acc_unit, clock, trace.read_start, trace.read_id, trace.size)
    return Workload(trace, duration, clock, acc_start, acc_unit, acc_write, acc_next, first, has_data)


@kept()
def _accesses(read_start: Any, read_id: Any, write_start: Any, write_id: Any, tensors: int) -> Any:
    ops = read_start.size - 1
    start = np.zeros(ops + 1, np.int64)
    unit = np.empty(read_id.size + write_id.size, np.int64)
    write = np.zeros(unit.size, np.uint8)
    seen = np.full(tensors, -1, np.int64)  # where the current operator listed the tensor
    n = 0
    for o in range(ops):
        begin = n
        for i in range(read_start[o], read_start[o + 1]):
            t = read_id[i]
            if seen[t] < begin:
                seen[t] = n
                unit[n] = t
                n += 1
        for i in range(write_start[o], write_start[o + 1]):
            t = write_id[i]
            if seen[t] < begin:
                seen[t] = n
                unit[n] = t
                n += 1
            write[seen[t]] = 1
        start[o + 1] = n
    return start, unit[:n], write[:n]


@kept()
def _next_uses(start: Any, unit: Any, clock: Any, read_start: Any, read_id: Any, size: Any) -> Any:
    first = np.full(size.size, np.inf)
    following = np.empty(unit.size)
    has_data = np.zeros(size.size, np.uint8)
    for o in range(start.size - 2, -1, -1):
        for i in range(start[o], start[o + 1]):
            t = unit[i]
            following[i] = first[t]
            first[t] = clock[o]
            has_data[t] = 0
        for i in range(read_start[o], read_start[o + 1]):
            has_data[read_id[i]] = 1  # the earliest operator decides, it comes last here
    return following, first, has_data


@kept()
def _live_peaks(kind: Any, arg: Any, size: Any) -> Any:
    live, peak, count, most = 0, 0, 0, 0
    for e in range(kind.size):
        if kind[e] == ALLOC:
            live += -(-size[arg[e]] // ROUND) * ROUND
            count += 1
            peak, most = max(peak, live), max(most, count)
        elif kind[e] == FREE:
            live -= -(-size[arg[e]] // ROUND) * ROUND
            count -= 1
    return peak, most
