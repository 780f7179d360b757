"""What the walk knows between two records: tensors, their blocks in both memories, who owned which address when."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numba import njit

from gpusim.results.referee.activities import NEVER, Activities
from gpusim.results.referee.codes import LEDGER
from gpusim.results.referee.packing import packing
from gpusim.results.referee.ranges import Ranges, ranges
from gpusim.results.referee.report import MOST
from gpusim.trace.trace import Trace


class World(NamedTuple):
    """Arrays over T tensors; `[2, T]` over device and host memory as well."""

    # Given: the trace, the machine, when the activities ran.
    size: Any          # int64[T] bytes
    wire: Any          # int64[T] bytes that a swap moves over the link
    stored: Any        # int64[T] bytes that a copy takes in host memory
    read_start: Any
    read_id: Any
    write_start: Any
    write_id: Any
    capacity: Any      # int64[2] bytes of each memory
    start: Any         # int64[activities] ns
    end: Any           # int64[activities] ns
    start_record: Any  # int64[activities]

    # Tensors.
    live: Any          # 0 not yet, 1 lives, 2 ended
    version: Any       # how often it was written
    lost: Any          # 1: the latest version is nowhere
    placed: Any        # 1: has had a block in device memory
    reason: Any        # why it may leave the device: 1 dropped, 2 copied out
    arrived: Any       # 1: this block of the device got its bytes by a copy
    left_at: Any       # left the device at this record without a reason so far, -1: no
    left_bytes: Any

    # Blocks, [2, T].
    where: Any         # address, -1 none; the host's is 0
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
    ledger: Any        # int64[len(LEDGER)]
    out: Any           # int64[MOST, 4]: record, code, x, y of what is wrong
    said: Any          # int64[1]: how many


def world(acts: Activities, trace: Trace, spec: Mapping[str, Any], places: int, device_calls: int) -> World:
    """Before the first of so many PLACE records and device calls."""
    units = len(trace.size)

    def none(shape: Any) -> Any:
        return np.full(shape, -1, np.int64)

    def zero(shape: Any, dtype: Any = np.int64) -> Any:
        return np.zeros(shape, dtype)

    both, packed = (2, units), packing(trace)
    capacity = [NEVER if spec.get(name) is None else int(spec[name]) for name in ("capacity", "host_capacity")]
    return World(
        size=trace.size, wire=packed.wire, stored=packed.stored, read_start=trace.read_start, read_id=trace.read_id,
        write_start=trace.write_start, write_id=trace.write_id, capacity=np.array(capacity, np.int64), start=acts.start,
        end=acts.end, start_record=acts.start_record,
        live=zero(units, np.uint8), version=zero(units), lost=zero(units, np.uint8), placed=zero(units, np.uint8),
        reason=zero(units, np.uint8), arrived=zero(units, np.uint8), left_at=none(units), left_bytes=zero(units),
        where=none(both), block=zero(both), holds=none(both), before=zero(both), written=zero(both), touched=zero(both),
        owner=ranges(4 * places, -1), held=ranges(2 * device_calls, 0 if device_calls else 1), used=ranges(2 * places, 0),
        ledger=zero(len(LEDGER)), out=zero((MOST, 4)), said=zero(1),
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
