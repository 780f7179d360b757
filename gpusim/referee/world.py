"""What the walk knows between two records: tensors, their blocks in all memories, which block owned which address when."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from gpusim.referee.activities import ActivityTimes
from gpusim.referee.codes import LEDGER
from gpusim.referee.packing import packing
from gpusim.referee.ranges import Ranges, ranges
from gpusim.referee.report import MOST
from gpusim.referee.tiers import Tiers
from gpusim.trace.trace import Trace


class World(NamedTuple):
    """Arrays over T tensors; `[M, T]` over the memories as well, the device's and those below it."""

    # Given: the trace, the machine, when the activities ran.
    size: Any          # int64[T] bytes
    wire: Any          # int64[T] bytes that a swap moves over the link
    stored: Any        # int64[T] bytes that a copy takes below the device
    read_start: Any
    read_id: Any
    write_start: Any
    write_id: Any
    home: Any          # int64[T] where operators use the tensor: the device, or the first tier below it
    capacity: Any      # int64[M] bytes of each memory
    start: Any         # int64[activities] ns
    end: Any           # int64[activities] ns
    start_record: Any  # int64[activities]
    cancelled: Any     # bool[activities]

    # Tensors.
    live: Any          # 0 not yet, 1 lives, 2 ended
    version: Any       # how often it was written
    lost: Any          # 1: the latest version is nowhere
    placed: Any        # 1: has had a block in device memory
    reason: Any        # why it may leave the device: 1 dropped, 2 copied out
    arrived: Any       # 1: this block of the device got its bytes by a copy
    left_at: Any       # left the device at this record without a reason so far, -1: no
    left_bytes: Any

    # Blocks, [M, T].
    where: Any         # address, -1 none; below the device 0
    block: Any         # bytes
    holds: Any         # version of the copy, -1 none
    before: Any        # when the former users of the block's bytes have ended, ns
    written: Any       # end of the last activity that wrote the block, ns
    touched: Any       # end of the last activity that used it, ns

    # Addresses of the device.
    owner: Ranges      # the tensor there, -1 for none
    held: Ranges       # 1 where the allocator holds the address
    used: Ranges       # when the last activity of earlier blocks here ended, ns

    # Answers.
    tier_bytes: Any    # int64[M, 4]: swapped in from there, swapped out to there, peak, now
    ledger: Any        # int64[len(LEDGER)]
    out: Any           # int64[MOST, 4]: record, code, x, y of what is wrong
    said: Any          # int64[1]: how many


def world(acts: ActivityTimes, trace: Trace, tiers: Tiers, places: int, device_calls: int) -> World:
    """Before the first of so many PLACE records and device calls."""
    units = len(trace.size)

    def none(shape: Any) -> Any:
        return np.full(shape, -1, np.int64)

    def zero(shape: Any, dtype: Any = np.int64) -> Any:
        return np.zeros(shape, dtype)

    both, packed = (tiers.memories, units), packing(trace)
    return World(
        size=trace.size, wire=packed.wire, stored=packed.stored, read_start=trace.read_start, read_id=trace.read_id,
        write_start=trace.write_start, write_id=trace.write_id, home=tiers.home(units), capacity=tiers.capacity,
        start=acts.start, end=acts.end, start_record=acts.start_record, cancelled=acts.cancelled,
        live=zero(units, np.uint8), version=zero(units), lost=zero(units, np.uint8), placed=zero(units, np.uint8),
        reason=zero(units, np.uint8), arrived=zero(units, np.uint8), left_at=none(units), left_bytes=zero(units),
        where=none(both), block=zero(both), holds=none(both), before=zero(both), written=zero(both), touched=zero(both),
        owner=ranges(4 * places, -1), held=ranges(2 * device_calls, 0 if device_calls else 1), used=ranges(2 * places, 0),
        tier_bytes=zero((tiers.memories, 4)), ledger=zero(len(LEDGER)), out=zero((MOST, 4)), said=zero(1),
    )  # fmt: skip


@njit
def _write(out: Any, said: Any, record: int, code: int, x: int, y: int) -> None:
    if said[0] < out.shape[0]:
        row = out[said[0]]
        row[0], row[1], row[2], row[3] = record, code, x, y
        said[0] += 1


# Decorates a step of the walk: compiled as part of it, and without counting references to all these arrays.
step = njit(no_cpython_wrapper=True, no_cfunc_wrapper=True, _nrt=False, forceinline=True)


@step
def say(w: World, record: int, code: int, x: int, y: int) -> None:
    """Write down what is wrong, while there is room."""
    _write(w.out, w.said, record, code, x, y)
