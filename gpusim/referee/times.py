"""Time: from the log, the trace and the machine's numbers, when everything should have happened, and why it waited."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from gpusim.base.compiled import kept
from gpusim.referee import ends, sms, stalls, starts, turns
from gpusim.referee.activities import NEVER, ActivityTimes
from gpusim.referee.host import tables as h
from gpusim.referee.host import walk
from gpusim.referee.numbers import Figures
from gpusim.referee.records import Records
from gpusim.referee.report import Findings
from gpusim.referee.tiers import Tiers
from gpusim.results.log import CANCEL, END, KINDS, STALL, STALLS
from gpusim.results.result import FAILED, Result
from gpusim.trace.trace import ALLOC, COLLECTIVE, COPY_IN, COPY_OUT, FREE, I64, KERNEL, OP, RECORD, WAIT, Trace

ROUNDED = ("stall_alloc_ns", "stall_launch_ns", "stall_sync_ns")  # where costs of device calls are rounded one by one


Judge = Callable[[ends.Started, Findings], None]
"""Compares the ends of what a run has started with those that follow."""


def check(
    result: Result, log: Records, acts: ActivityTimes, trace: Trace, tiers: Tiers, n: Figures, found: Findings,
    judge: Judge = ends.check,
) -> dict[str, int | float]:  # fmt: skip
    """Every time of the log; returns the metrics that follow from them."""
    columns = {name: log[name] for name in ("kind", "a", "b", "addr", "t")}
    columns["size"] = log["bytes"]
    queue, roles = _queues(acts, trace, tiers)
    w = _host(columns, acts, trace, tiers, n, queue, roles)
    through = walk.each_record(w, _costs(trace, n))
    np.maximum(w.need[:, 1], _held(log, acts, w), out=w.need[:, 1])
    for record, expected, at, why in w.said[: w.now[h.SAID]].tolist():
        what = f"the host makes {KINDS[columns['kind'][record]]} {columns['a'][record]} at {at} ns"
        found.say(record, what, f"{expected} ns, {h.CAUSES[why]}{_ended(acts, expected, why)}")
    line, on_sms = turns.in_line(acts, trace, tiers, n), sms.users(acts, n) > 0
    s = _starts(columns, acts, trace, tiers, n, w, np.select([on_sms, line >= 0], [starts.PROCESSORS, starts.TURN], 0))
    starts.each_start(s)
    turns.check(acts, line, tiers, s.ready, w.wanted, n, found)
    grants = ends.NOTHING if n.beside else sms.check(acts, trace, s.ready, columns["t"], n, found)
    judge(ends.Started(acts, trace, tiers, n, grants, ends.Ready(s.ready, s.bare, columns["t"])), found)
    for record, act, due in s.said[: s.count[0]].tolist():
        cause = _cause(acts, s, act, due)
        found.say(record, f"activity {act} of {tiers.name(int(acts.queue[act]))} starts at {columns['t'][record]} ns",
                  f"{due} ns, {cause}")  # fmt: skip
    found.count("waits with a cause", len(log) - int(np.isin(columns["kind"], (END, STALL)).sum()))
    if stalls.told(result, log):
        stalls.check(result, log, acts, s, roles, found)
    return _metrics(result, log, acts, w, s, through) | {"sharing_ns": _shared(acts, trace, n)}


def _ended(acts: ActivityTimes, time: int, why: int) -> str:
    """Which activity ended then."""
    at = np.flatnonzero(acts.end == time)
    return f" (activity {at[-1]} ends)" if len(at) and why in (h.IDLES, h.ROOM, h.COPIES) else ""


def _cause(acts: ActivityTimes, s: starts.Starts, act: int, due: int) -> str:
    if due == s.submit[act]:
        return "when it is submitted"
    at = np.flatnonzero(acts.end == due)
    if len(at):
        return f"when activity {at[-1]} ends"
    return "after the gap between two launches" if s.launched[act] else "when the copies before it have started"


def _metrics(
    result: Result, log: Records, acts: ActivityTimes, w: h.HostWalk, s: starts.Starts, through: int
) -> dict[str, int | float]:
    ended = acts.end[acts.end < NEVER]
    last = int(log["t"][-1]) if len(log) else 0
    claimed = int(result.metrics.get("makespan_ns", through))
    if through - w.now[h.BLUR] <= claimed <= through:  # the last calls of the device were rounded one by one
        through = claimed
    if result.outcome == FAILED and last <= claimed <= through:  # how far its host got, the log does not tell to the end
        last = claimed
    out: dict[str, int | float] = {f"stall_{cause}_ns": int(s.sums[i]) for i, cause in enumerate(STALLS)}
    for name in ROUNDED:  # those nanoseconds may have been waits of another cause
        claimed = int(result.metrics.get(name, out[name]))
        out[name] = claimed if abs(claimed - out[name]) <= w.now[h.BLURRED] else out[name]
    out |= {
        "makespan_ns": max(last, int(ended.max(initial=0)), through) if result.finished else last,
        "prefetches": int(w.now[h.PREFETCHES]), "prefetch_hits": int(w.now[h.HITS]),
        "prefetch_late": int(s.sums[starts.LATE]), "prefetch_wasted": int(w.now[h.WASTED]),
        "prefetch_cancelled": int(w.now[h.CANCELLED]),
    }  # fmt: skip
    # What an operator asked for that ran out of memory is not in the log.
    unsure = w.now[h.UNSURE] or not result.finished
    return out if unsure else out | {"prefetch_promoted": int(w.now[h.PROMOTED])}


def _shared(acts: ActivityTimes, trace: Trace, n: Figures) -> int:
    """What kernels take beyond their durations."""
    kernels = np.append(trace.activity == KERNEL, False)[acts.op] & (acts.end < NEVER)
    return int((acts.end - acts.start)[kernels].sum() - n.duration[acts.op[kernels]].sum())


def _queues(acts: ActivityTimes, trace: Trace, tiers: Tiers) -> tuple[I64, I64]:
    """Of each activity its queue, streams first; the role of each queue: stream, copies to the device, from it."""
    streams = int(trace.stream.max(initial=0)) + 1
    copying = 4 * tiers.engines
    roles = np.concatenate([np.zeros(streams, np.int64), 1 + np.arange(copying) % 2])
    return np.where(acts.queue >= 0, acts.queue, streams - 1 - acts.queue), roles


def _held(log: Records, acts: ActivityTimes, w: h.HostWalk) -> I64:
    """Until when each copy waits behind one that is called off at last."""
    held = np.zeros(len(acts.record), np.int64)
    off = log["kind"] == CANCEL
    held[log["addr"][off]] = log["t"][off]
    for q in np.flatnonzero(w.role):
        mine = w.order[w.turn[q] : w.turn[q + 1]]
        held[mine] = np.maximum.accumulate(held[mine])
    return held


def _costs(trace: Trace, n: Figures) -> h.HostCosts:
    m = n.machine
    return h.HostCosts(
        m.operator, m.submit, m.wait, m.cached, m.malloc, m.malloc_per_byte, m.free, m.free_per_byte, m.move_per_byte,
        queue=m.queue, copies=_most_copies(trace),
    )  # fmt: skip


def _most_copies(trace: Trace) -> int:
    """How many copies the host may be ahead of an engine: all tensors that can be there at once, and some more."""
    alive = np.cumsum((trace.kind == ALLOC).astype(np.int64) - (trace.kind == FREE))
    widest = _widest(trace.read_start, trace.read_id, trace.write_start, trace.write_id, np.full(trace.tensors, -1))
    wanted: int = 2 * (int(alive.max(initial=0)) + widest) + 1024
    return (1 << (wanted - 1).bit_length()) // 2


@kept()
def _widest(read_start: Any, read_id: Any, write_start: Any, write_id: Any, seen: Any) -> int:
    """The most tensors that one operator accesses; seen: int64[T] of -1."""
    most = 0
    for o in range(read_start.size - 1):
        tensors = 0
        for j in range(read_start[o], read_start[o + 1]):
            tensors += seen[read_id[j]] != o
            seen[read_id[j]] = o
        for j in range(write_start[o], write_start[o + 1]):
            tensors += seen[write_id[j]] != o
            seen[write_id[j]] = o
        most = max(most, tensors)
    return int(most)


def _host(
    columns: dict[str, npt.NDArray[Any]], acts: ActivityTimes, trace: Trace, tiers: Tiers, n: Figures, queue: I64, roles: I64
) -> h.HostWalk:
    many, units = len(roles), trace.tensors
    turn = np.searchsorted(np.sort(queue), np.arange(many + 1))
    order = np.argsort(queue, kind="stable")
    done, ends_at = np.zeros(len(queue), np.int64), np.where(acts.cancelled, 0, acts.end)
    for q in range(many):
        mine = order[turn[q] : turn[q + 1]]
        done[mine] = np.maximum.accumulate(ends_at[mine])
    streams = int((roles == 0).sum())
    marks = streams + int(trace.arg[np.isin(trace.kind, (RECORD, WAIT))].max(initial=-1)) + 1

    def zero(*shape: int, dtype: Any = np.int64) -> Any:
        return np.zeros(shape, dtype)

    def none(*shape: int) -> Any:
        return np.full(shape, -1, np.int64)

    return h.HostWalk(
        **columns, event=trace.kind.astype(np.int64), arg=trace.arg, stream=trace.stream.astype(np.int64), time=trace.time,
        read_start=trace.read_start, read_id=trace.read_id, write_start=trace.write_start, write_id=trace.write_id,
        bytes=trace.size, home=tiers.home(units), program=np.isin(trace.activity, (COPY_IN, COPY_OUT)).astype(np.uint8),
        call=n.call, queue=queue, done=done, cancelled=acts.cancelled, started=acts.start_record, submitted=acts.record,
        turn=turn, order=order, role=roles, waits=np.array([0, *n.waits], np.uint8),
        costs=np.array([(0.0, 0.0, 0.0), *n.blocks]),
        kept=np.array([0, *n.kept], np.uint8), blocks=zero(1 + len(n.kept), 64, 2), submit=acts.submit.copy(),
        now=zero(h.STATE), count=zero(many),
        after=zero(units, many), use=zero(units, many), prior=zero(units), out=none(units), moving=zero(units, dtype=np.uint8),
        gone=none(units), sent=none(units), fetched=none(units), brought=none(units),
        wanted=zero(len(queue)), marks=zero(marks, many), freed=zero(h.RECENT, 2),
        freed_use=zero(h.RECENT + 1, many),
        need=zero(len(queue), 3),
        alloc_ns=zero(len(queue)), sync_ns=zero(len(queue)), late=none(len(queue)), said=zero(h.MOST, 4),
    )  # fmt: skip


def _starts(
    columns: dict[str, npt.NDArray[Any]], acts: ActivityTimes, trace: Trace, tiers: Tiers, n: Figures, w: h.HostWalk, then: I64
) -> starts.Starts:
    """then: what each activity waits for when it is ready, as `starts` numbers it."""
    streams = int((w.role == 0).sum())
    sides = sorted(tiers.slots)
    group = w.queue.copy()
    for q in np.unique(acts.queue[acts.queue < 0]).tolist():
        group[acts.queue == q] = streams + sides.index(tiers.side(q))
    activity = np.append(trace.activity.astype(np.int64), -1)[acts.op]
    on = trace.stream[trace.kind == OP][trace.activity == KERNEL]
    computes = np.zeros(len(w.role), np.uint8)
    computes[np.unique(on) if len(on) else [0]] = 1
    slots = np.array([1] * streams + [tiers.slots[side] for side in sides], np.int64)
    in_line = np.zeros(len(slots), np.uint8)
    in_line[group[(acts.queue < 0) & (then == starts.TURN)]] = 1
    return starts.Starts(
        columns["kind"], columns["a"], columns["b"], columns["size"], columns["t"], w.queue, group,
        np.isin(activity, (KERNEL, COLLECTIVE)).astype(np.uint8),
        w.submit, w.need, w.alloc_ns, w.sync_ns, w.late, w.done, then.astype(np.uint8), computes, slots,
        in_line, n.machine.gap, int(w.now[h.BLURRED]),
        free=np.zeros(len(slots), np.int64), running=np.zeros(len(slots), np.int64), before=np.full(len(w.role), -1, np.int64),
        ready=np.full(len(acts.record), NEVER), bare=np.full(len(acts.record), NEVER),
        sums=np.zeros(len(STALLS) + 1, np.int64), own=np.zeros(len(STALLS), np.int64), given=np.zeros(len(STALLS), np.int64),
        differs=np.zeros((starts.MOST, 4), np.int64), said=np.zeros((starts.MOST, 3), np.int64), count=np.zeros(2, np.int64),
    )  # fmt: skip
