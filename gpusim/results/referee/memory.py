"""Blocks, versions and hazards: one walk over the log in program order, knowing when each activity ran.

The argument, in two halves.  *In program order* every kernel finds its tensors in device memory, and what it reads is
the version written last: a write makes all other copies stale, a copy carries the version of its source.  *In time* two
activities that touch the same bytes, at least one of them changing what the bytes mean, run in program order and do not
overlap.  Together: the run read and wrote the same data as if everything had happened one after the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit

from gpusim.core.log import COPY, CREATE, DESTROY, DROP, ISSUE, OOM, PLACE, RELEASE, RESERVE, UNPLACE
from gpusim.results.referee import codes as c
from gpusim.results.referee.activities import NEVER, Activities
from gpusim.results.referee.codes import DEVICE, HOST, LEDGER, SAYS
from gpusim.results.referee.ranges import highest, lowest, paint, ranges
from gpusim.results.referee.report import MOST, Findings
from gpusim.trace.trace import Trace


def walk(
    log: npt.NDArray[Any], acts: Activities, trace: Trace, spec: Mapping[str, Any], found: Findings
) -> dict[str, int]:
    """Check all records in program order; returns the ledger."""
    column = {name: np.ascontiguousarray(log[name]) for name in ("kind", "a", "b", "addr", "bytes")}
    many = int(np.count_nonzero(column["kind"] == PLACE))
    calls = int(np.count_nonzero((column["kind"] == RESERVE) | (column["kind"] == RELEASE)))
    out = np.zeros((MOST, 4), np.int64)
    ledger = np.zeros(len(LEDGER), np.int64)
    said = _walk(
        column["kind"], column["a"], column["b"], column["addr"], column["bytes"],
        acts.start, acts.end, acts.start_record,
        trace.size, trace.read_start, trace.read_id, trace.write_start, trace.write_id,
        np.array([_capacity(spec, "capacity"), _capacity(spec, "host_capacity")], np.int64),
        *ranges(4 * many, -1), *ranges(2 * calls, 0 if calls else 1), *ranges(2 * many, 0), ledger, out,
    )  # fmt: skip
    for record, code, x, y in out[:said].tolist():
        what, expected = SAYS[code]
        found.say(record, what.format(x=x, y=y), expected.format(x=x, y=y))
    counts = dict(zip(LEDGER, ledger.tolist(), strict=True))
    found.count("blocks", counts["blocks"])
    found.count("accesses", counts["accesses"])
    resident = counts["created_bytes"] + counts["arrived_bytes"]
    resident -= counts["freed_bytes"] + counts["dropped_bytes"] + counts["departed_bytes"]
    if resident != counts["allocated_now"] and not said:
        found.say(-1, f"created + arrived - freed - dropped - departed is {resident} bytes",
                  f"{counts['allocated_now']} bytes, what is resident")  # fmt: skip
    return counts


def _capacity(spec: Mapping[str, Any], name: str) -> int:
    value = spec.get(name)
    return NEVER if value is None else int(value)


@njit(cache=True)
def _say(out: Any, said: Any, record: int, code: int, x: int, y: int) -> None:
    if said[0] < out.shape[0]:
        row = out[said[0]]
        row[0], row[1], row[2], row[3] = record, code, x, y
        said[0] += 1


@njit(cache=True)
def _starts_after(out: Any, said: Any, act: int, unit: int, need: int, start: Any, start_record: Any) -> None:
    """The activity started, if it did, when `need` (ns) had passed."""
    if start[act] < need:
        if need >= NEVER:
            _say(out, said, start_record[act], c.NEVER_DONE, act, unit)
        else:
            _say(out, said, start_record[act], c.TOO_EARLY, act, need)


@njit(cache=True)
def _walk(
    kind: Any, a: Any, b: Any, addr: Any, size: Any, start: Any, end: Any, start_record: Any,
    tensor_size: Any, read_start: Any, read_id: Any, write_start: Any, write_id: Any, capacity: Any,
    own_k: Any, own_v: Any, own_n: Any,      # owner of each device address, -1 for none
    held_k: Any, held_v: Any, held_n: Any,   # 1 where the allocator holds the address
    used_k: Any, used_v: Any, used_n: Any,   # when the last activity of earlier blocks here ended, ns
    ledger: Any, out: Any,
) -> int:  # fmt: skip
    units = tensor_size.size
    said = np.zeros(1, np.int64)
    live = np.zeros(units, np.uint8)         # 0 not yet, 1 lives, 2 ended
    version = np.zeros(units, np.int64)      # how often it was written
    lost = np.zeros(units, np.uint8)         # the latest version is nowhere
    placed = np.zeros(units, np.uint8)       # has had a block in device memory
    reason = np.zeros(units, np.uint8)       # why it may leave the device: 1 dropped, 2 copied out
    arrived = np.zeros(units, np.uint8)      # this block of the device got its bytes by a copy
    left_at = np.full(units, -1, np.int64)   # left the device at this record without a reason so far
    left_bytes = np.zeros(units, np.int64)
    where = np.full((2, units), -1, np.int64)    # address of its block in each memory, -1 none; the host's is 0
    block = np.zeros((2, units), np.int64)
    holds = np.full((2, units), -1, np.int64)    # version of the copy in each memory, -1 none
    before = np.zeros((2, units), np.int64)      # when the former users of the block's bytes have ended, ns
    written = np.zeros((2, units), np.int64)     # end of the last activity that wrote the block
    touched = np.zeros((2, units), np.int64)     # end of the last activity that used it

    for i in range(kind.size):
        k, u, m, at, n = kind[i], a[i], b[i], addr[i], size[i]
        if k == CREATE:
            if live[u] != 0:
                _say(out, said, i, c.TWICE_BORN, u, 0)
            if n != tensor_size[u]:
                _say(out, said, i, c.WRONG_SIZE, n, tensor_size[u])
            live[u] = 1

        elif k == DESTROY:
            if live[u] != 1:
                _say(out, said, i, c.NOT_LIVE, u, 0)
            if n != tensor_size[u]:
                _say(out, said, i, c.WRONG_SIZE, n, tensor_size[u])
            live[u] = 2
            for memory in range(2):
                if where[memory, u] >= 0:
                    _say(out, said, i, c.ENDS_PLACED, u, memory)
            if left_at[u] >= 0:
                ledger[c.FREED] += left_bytes[u]
                left_at[u] = -1

        elif k == PLACE:
            if live[u] != 1:
                _say(out, said, i, c.NOT_LIVE, u, 0)
            if where[m, u] >= 0:
                _say(out, said, i, c.PLACED_TWICE, u, m)
                continue
            if n < tensor_size[u] or n <= 0:
                _say(out, said, i, c.TOO_SMALL, n, tensor_size[u])
                continue
            block[m, u] = n
            holds[m, u] = -1
            before[m, u] = 0
            written[m, u] = 0
            touched[m, u] = 0
            ledger[c.BLOCKS] += 1
            if m == HOST:
                where[HOST, u] = 0
                ledger[c.H_NOW] += n
                ledger[c.H_PEAK] = max(ledger[c.H_PEAK], ledger[c.H_NOW])
                if ledger[c.H_NOW] > capacity[HOST]:
                    _say(out, said, i, c.OVER_CAPACITY, HOST, ledger[c.H_NOW])
                continue
            where[DEVICE, u] = at
            if left_at[u] >= 0:
                _say(out, said, i, c.NO_REASON, u, left_at[u])
                left_at[u] = -1
            reason[u] = 0
            arrived[u] = 0
            if placed[u] == 0:
                placed[u] = 1
                holds[DEVICE, u] = version[u]  # data that the tensor came with stands in its first block
            inside = at >= 0 and lowest(held_k, held_v, held_n, at, at + n) == 1
            if not inside or (held_n[0] == 1 and at + n > capacity[DEVICE]):
                _say(out, said, i, c.UNRESERVED, at, n)
            if at >= 0:
                owner = highest(own_k, own_v, own_n, at, at + n)
                if owner >= 0:
                    _say(out, said, i, c.OVERLAP, at, owner)
                before[DEVICE, u] = highest(used_k, used_v, used_n, at, at + n)
                paint(own_k, own_v, own_n, at, at + n, u)
            ledger[c.CREATED] += n
            ledger[c.A_NOW] += n
            ledger[c.A_TOTAL] += n
            ledger[c.Q_NOW] += tensor_size[u]
            ledger[c.Q_TOTAL] += tensor_size[u]
            ledger[c.Q_PEAK] = max(ledger[c.Q_PEAK], ledger[c.Q_NOW])
            ledger[c.R_PEAK] = max(ledger[c.R_PEAK], ledger[c.R_NOW])
            if ledger[c.A_NOW] > ledger[c.A_PEAK]:
                ledger[c.A_PEAK] = ledger[c.A_NOW]
                ledger[c.Q_AT_PEAK] = ledger[c.Q_NOW]
            if ledger[c.A_NOW] > capacity[DEVICE]:
                _say(out, said, i, c.OVER_CAPACITY, DEVICE, ledger[c.A_NOW])

        elif k == UNPLACE:
            if where[m, u] < 0 or block[m, u] != n or (m == DEVICE and where[m, u] != at):
                _say(out, said, i, c.NO_SUCH_BLOCK, u, m)
                continue
            where[m, u] = -1
            if holds[m, u] == version[u] and holds[1 - m, u] != version[u]:
                lost[u] = 1
            holds[m, u] = -1
            if m == HOST:
                ledger[c.H_NOW] -= n
                continue
            if at >= 0:
                paint(own_k, own_v, own_n, at, at + n, -1)
                if touched[DEVICE, u] > 0:
                    paint(used_k, used_v, used_n, at, at + n, max(touched[DEVICE, u], before[DEVICE, u]))
            ledger[c.A_NOW] -= n
            ledger[c.Q_NOW] -= tensor_size[u]
            if reason[u] == 1:
                ledger[c.DROPPED] += n
            elif reason[u] == 2:
                ledger[c.DEPARTED] += n
            else:
                left_at[u] = i
                left_bytes[u] = n
            reason[u] = 0

        elif k == DROP:
            if where[m, u] < 0 or block[m, u] != n or (m == DEVICE and where[m, u] != at):
                _say(out, said, i, c.NO_SUCH_BLOCK, u, m)
            elif m == DEVICE:
                reason[u] = 1
                ledger[c.DROPS] += 1

        elif k == COPY:
            src, dst = m >> 8, m & 255
            if dst == DEVICE:
                ledger[c.INS] += 1
                ledger[c.BYTES_IN] += n
            else:
                ledger[c.OUTS] += 1
                ledger[c.BYTES_OUT] += n
            if n != tensor_size[u]:
                _say(out, said, i, c.WRONG_MOVE, n, tensor_size[u])
            if where[src, u] < 0 or where[dst, u] < 0:
                _say(out, said, i, c.NO_ENDS, u, src if where[src, u] < 0 else dst)
                continue
            if holds[src, u] < 0:
                _say(out, said, i, c.NO_SOURCE, at, u)
            need = max(before[src, u], written[src, u], before[dst, u], touched[dst, u])
            _starts_after(out, said, at, u, need, start, start_record)
            holds[dst, u] = holds[src, u]
            touched[src, u] = max(touched[src, u], end[at])
            touched[dst, u] = max(touched[dst, u], end[at])
            written[dst, u] = end[at]
            if src == DEVICE:
                reason[u] = 2
            elif arrived[u] == 0:
                arrived[u] = 1
                ledger[c.CREATED] -= block[DEVICE, u]
                ledger[c.ARRIVED] += block[DEVICE, u]

        elif k == ISSUE:
            ledger[c.KERNELS] += 1
            need, whose = 0, -1
            for j in range(read_start[u], read_start[u + 1]):
                t = read_id[j]
                ledger[c.ACCESSES] += 1
                if tensor_size[t] == 0:
                    continue
                if where[DEVICE, t] < 0:
                    _say(out, said, i, c.NOT_RESIDENT, at, t)
                elif lost[t] != 0:
                    _say(out, said, i, c.LOST, at, t)
                elif holds[DEVICE, t] != version[t]:
                    _say(out, said, i, c.STALE, at, t)
                ends = max(before[DEVICE, t], written[DEVICE, t])
                if ends > need:
                    need, whose = ends, t
            for j in range(write_start[u], write_start[u + 1]):
                t = write_id[j]
                ledger[c.ACCESSES] += 1
                if tensor_size[t] == 0:
                    continue
                if where[DEVICE, t] < 0:
                    _say(out, said, i, c.NOT_RESIDENT, at, t)
                ends = max(before[DEVICE, t], touched[DEVICE, t])
                if ends > need:
                    need, whose = ends, t
            _starts_after(out, said, at, whose, need, start, start_record)
            for j in range(read_start[u], read_start[u + 1]):
                t = read_id[j]
                touched[DEVICE, t] = max(touched[DEVICE, t], end[at])
            for j in range(write_start[u], write_start[u + 1]):
                t = write_id[j]
                touched[DEVICE, t] = max(touched[DEVICE, t], end[at])
                written[DEVICE, t] = end[at]
                version[t] += 1
                holds[DEVICE, t] = version[t]
                lost[t] = 0
                reason[t] = 0

        elif k == RESERVE:
            if at < 0 or n <= 0 or highest(held_k, held_v, held_n, at, at + n) != 0:
                _say(out, said, i, c.RESERVED_TWICE, at, 0)
                continue
            paint(held_k, held_v, held_n, at, at + n, 1)
            ledger[c.RESERVES] += 1
            ledger[c.R_NOW] += n
            if ledger[c.R_NOW] > capacity[DEVICE]:
                _say(out, said, i, c.OVER_CAPACITY, DEVICE, ledger[c.R_NOW])

        elif k == RELEASE:
            if at < 0 or n <= 0 or lowest(held_k, held_v, held_n, at, at + n) != 1:
                _say(out, said, i, c.NOT_RESERVED, at, 0)
                continue
            owner = highest(own_k, own_v, own_n, at, at + n)
            if owner >= 0:
                _say(out, said, i, c.UNDER_BLOCK, at, owner)
            paint(held_k, held_v, held_n, at, at + n, 0)
            ledger[c.RELEASES] += 1
            ledger[c.R_NOW] -= n

        elif k == OOM:
            ledger[c.OOMS] += 1
            # Whether the largest block would do is the allocator's to say: pools and streams keep some for themselves.
            if m == DEVICE and at > capacity[DEVICE] - ledger[c.A_NOW]:
                _say(out, said, i, c.NOT_FULL, at, capacity[DEVICE] - ledger[c.A_NOW])

    for u in range(units):
        if left_at[u] >= 0:
            _say(out, said, left_at[u], c.NO_REASON, u, left_at[u])
        if reason[u] == 1 and where[DEVICE, u] >= 0:
            _say(out, said, kind.size - 1, c.STILL_THERE, u, DEVICE)
    return int(said[0])
