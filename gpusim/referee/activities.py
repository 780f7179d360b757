"""Kernels and copies in time: each runs once, in its queue's turn.

All of it is array arithmetic over the log; a check that fails names the first record where it shows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from gpusim.base.compiled import kept
from gpusim.machine.transfer_times import host_bytes
from gpusim.referee.records import Records
from gpusim.referee.report import Findings
from gpusim.referee.tiers import Tiers
from gpusim.results.log import (
    CANCEL,
    COPY,
    CREATE,
    DECIDE,
    DEFRAG,
    DESTROY,
    DROP,
    END,
    ISSUE,
    KINDS,
    MOVE,
    OOM,
    PLACE,
    REDIRECT,
    REGAINED,
    RELEASE,
    RESERVE,
    STALL,
    STALLS,
    START,
    UNPLACE,
)
from gpusim.trace.trace import (
    ALLOC,
    FREE,
    I64,
    MOVES,
    OP,
    RECORD,
    SYNC,
    WAIT,
    Trace,
)

NEVER = 2**62  # the time at which something ends that never does
NONE = np.zeros(0, np.int64)
MOST_NUMBER = 2**60  # addresses, sizes and times above this are no machine's, and sums of two still fit int64
_OF_UNIT = (CREATE, PLACE, UNPLACE, DESTROY, COPY, DROP, OOM, MOVE, CANCEL, DECIDE, REDIRECT)
_IN_MEMORY = (PLACE, UNPLACE, DROP, OOM, MOVE)


@dataclass(frozen=True)
class ActivityTimes:
    """A row per activity, in the order of submission; times in ns."""

    record: I64  # where it was submitted
    queue: I64   # stream of an operator, a negative number of a swap
    copy: I64    # `b` of a swap's COPY, or of the REDIRECT that changed it, -1 of an operator
    op: I64      # operator, -1 of a swap
    size: I64    # bytes of a swap, 0 of a cancelled one, or that an operator moves over links
    submit: I64
    start: I64   # NEVER when it did not
    end: I64     # NEVER when it did not
    start_record: I64  # -1 when it did not
    end_record: I64
    cancelled: npt.NDArray[np.bool_]  # a swap that was called off before it started
    met: npt.NDArray[np.bool_]  # it ends with activities of other runs


def well_formed(log: Records, trace: Trace, tiers: Tiers, found: Findings) -> bool:
    """Every record means something: known kinds, ids that exist, times that never fall.  False: look no further."""
    before = len(found.violations)
    kind, a, b = log["kind"], log["a"], log["b"]
    first(found, (kind < CREATE) | (kind > REDIRECT), lambda i: f"there is no record kind {kind[i]}", f"1 to {REDIRECT}")
    falls = np.diff(log["t"], prepend=np.int64(0)) < 0
    first(found, falls, lambda i: f"time falls to {log['t'][i]} ns", "time that never falls")
    of_kind = np.left_shift(1, np.clip(kind, 0, REDIRECT + 1))
    for kinds, column, many, thing in (
        (_OF_UNIT, a, trace.tensors, "tensor"),
        ((ISSUE,), a, trace.ops, "operator"),
        (_IN_MEMORY, b, tiers.memories, "memory"),
        ((RESERVE, RELEASE), b, 1, "memory"),
        ((DECIDE,), b, REGAINED + 1, "decision"),
        ((STALL,), b, len(STALLS), "cause"),
        ((DEFRAG,), a, len(log), "record"),
        ((DEFRAG,), b, 4, "moment"),
        ((DEFRAG,), log["addr"], trace.events + 1, "event"),
    ):
        wrong = ((column < 0) | (column >= many)) & (of_kind & sum(1 << k for k in kinds) != 0)
        first(found, wrong, lambda i, c=column, t=thing: f"{_name(kind[i])} of {t} {c[i]}", f"one of {many}")
    src, dst = b >> 8 & 255, b & 255
    copies = (kind == COPY) | (kind == REDIRECT)
    lent = np.array([False, *map(bool, tiers.lenders), *[False] * (256 - tiers.memories)])
    falls = lent[src] & ~lent[dst] & (src < dst) & (kind == COPY)
    wrong = copies & (((np.minimum(src, dst) != 0) & ~falls) | (np.maximum(src, dst) >= tiers.memories) | (src == dst))
    wrong |= copies & ((b < 0) | (b >> 16 > 1)) | ((kind == REDIRECT) & (lent[src] | lent[dst]))
    first(found, wrong, lambda i: f"a copy from memory {b[i] >> 8} to {b[i] & 255}", "from or to the device")
    for name, least in (("addr", -1), ("bytes", 0), ("t", 0)):
        values = log[name]
        wrong = (values < least) | (values > MOST_NUMBER)
        first(found, wrong, lambda i, v=values, n=name: f"{n} is {v[i]}", f"{least} to 2^60")
    found.count("records", len(log))
    return len(found.violations) == before


def program_order(log: Records, trace: Trace, finished: bool, found: Findings) -> bool:
    """Tensors begin and end, and kernels are submitted, in the order of the trace; all when the run finished."""
    of_trace = np.isin(trace.kind, (ALLOC, FREE, OP))
    same = np.zeros(256, np.int64)
    same[[ALLOC, FREE, OP]] = CREATE, DESTROY, ISSUE
    due, due_id = same[trace.kind[of_trace]], trace.arg[of_trace]
    at = np.flatnonzero(np.isin(log["kind"], (CREATE, DESTROY, ISSUE)))
    done, done_id = log["kind"][at], log["a"][at]
    n = min(len(done), len(due))
    wrong = np.flatnonzero((done[:n] != due[:n]) | (done_id[:n] != due_id[:n]))
    found.count("events of the trace", n)
    if len(wrong):
        i = int(wrong[0])
        found.say(at[i], f"{_name(done[i])} {done_id[i]}", f"{_name(due[i])} {due_id[i]}, the trace's next event")
    elif len(done) > len(due):
        found.say(at[n], f"{_name(done[n])} {done_id[n]} after the end of the trace", "no more events")
    elif finished and len(done) < len(due):
        found.say(-1, f"the run finished without {_name(due[n])} {due_id[n]}", "every event of the trace")
    else:
        return True
    return False


def collect(
    log: Records, trace: Trace, tiers: Tiers, finished: bool, found: Findings, met: I64 = NONE
) -> ActivityTimes | None:
    """Pair submissions, starts and ends; None when they do not pair.  met: operators that end with those of other runs."""
    before = len(found.violations)
    kind, t = log["kind"], log["t"]
    record = np.flatnonzero((kind == ISSUE) | (kind == COPY))
    count = len(record)
    numbered = log["addr"][record] == np.arange(count)
    first(found, ~numbered, lambda i: f"activity {log['addr'][record[i]]}", "numbers in order of submission", record)
    is_copy = kind[record] == COPY
    copy = np.where(is_copy, log["b"][record], -1)
    queue = np.where(is_copy, tiers.queue(np.maximum(copy, 0)), log["b"][record])
    stream = trace.stream[trace.kind == OP][: np.count_nonzero(~is_copy)]
    wrong = np.flatnonzero(queue[~is_copy] != stream)
    if len(wrong):
        i = record[~is_copy][wrong[0]]
        found.say(i, f"operator {log['a'][i]} on stream {log['b'][i]}", f"stream {stream[wrong[0]]}, as in the trace")
    found.count("activities", count)

    times, where = {}, {}
    for which, verb in ((START, "starts"), (END, "ends")):
        at = np.flatnonzero(kind == which)
        number = log["a"][at]
        bad = (number < 0) | (number >= count)
        first(found, bad, lambda i, n=number, v=verb: f"activity {n[i]} {v}", f"one of {count}", at)
        at, number = at[~bad], number[~bad]
        first_at = np.full(count, len(log))
        np.minimum.at(first_at, number, at)
        again = first_at[number] != at
        first(found, again, lambda i, n=number, v=verb: f"activity {n[i]} {v} again", "once", at)
        first(
            found, log["b"][at] != queue[number],
            lambda i, n=number, q=log["b"][at]: f"activity {n[i]} in queue {q[i]}", "the queue it was submitted to", at,
        )  # fmt: skip
        times[which], where[which] = np.full(count, NEVER), np.full(count, -1)
        times[which][number], where[which][number] = t[at], at
    start, end = where[START], where[END]
    early = (start >= 0) & (start < record)
    first(found, early, lambda i: f"activity {i} starts before it is submitted", "a start after that", start)
    early = (end >= 0) & ((start < 0) | (end < start))
    first(found, early, lambda i: f"activity {i} ends before it starts", "an end after that", end)
    cancelled = _cancelled(log, record, found)
    first(found, cancelled & (start >= 0), lambda i: f"activity {i} starts and is cancelled", "one of both", record)
    if finished:
        first(found, (end < 0) & ~cancelled, lambda i: f"activity {i} never ends though the run finished", "an end", record)
    if len(found.violations) > before:
        return None
    copy = _redirected(log, record, copy, start, found)
    size = np.where(cancelled, 0, log["bytes"][record])
    op = np.where(is_copy, -1, log["a"][record])
    due = np.where(np.isin(trace.activity, MOVES), trace.read_bytes, host_bytes(trace))[op[~is_copy]]
    wrong = np.flatnonzero(size[~is_copy] != due)
    if len(wrong):
        i = record[~is_copy][wrong[0]]
        found.say(i, f"operator {log['a'][i]} moves {log['bytes'][i]} bytes", f"{due[wrong[0]]}, as in the trace")
        return None
    together = np.isin(op, met) if len(met) else np.zeros(count, bool)
    return ActivityTimes(record, queue, copy, op, size, t[record], times[START], times[END], start, end, cancelled, together)


def _redirected(log: Records, record: I64, copy: I64, start: I64, found: Findings) -> I64:
    """Between which memories each copy goes at last: one that has not started may take another way, in its direction."""
    at = np.flatnonzero(log["kind"] == REDIRECT)
    number, copy = log["addr"][at], copy.copy()
    bad = (number < 0) | (number >= len(record))
    of = np.where(bad, 0, number)
    bad |= (log["a"][record[of]] != log["a"][at]) | (record[of] > at) | ((start[of] >= 0) & (start[of] < at)) | (copy[of] < 0)
    bad |= (log["b"][at] & 255 != 0) != (copy[of] & 255 != 0)
    first(found, bad, lambda i: f"activity {number[i]} takes another way", "an earlier swap of the same tensor, not begun", at)
    copy[number[~bad]] = log["b"][at][~bad] | copy[number[~bad]] & (1 << 16)
    return copy


def _cancelled(log: Records, record: I64, found: Findings) -> npt.NDArray[np.bool_]:
    """Of each activity whether a later record calls it off; such a record names a swap of its unit."""
    out = np.zeros(len(record), bool)
    at = np.flatnonzero(log["kind"] == CANCEL)
    number = log["addr"][at]
    bad = (number < 0) | (number >= len(record))
    swap = record[np.where(bad, 0, number)] if len(record) else np.zeros(len(at), np.int64)
    bad |= (log["kind"][swap] != COPY) | (log["a"][swap] != log["a"][at]) | (swap > at)
    first(found, bad, lambda i: f"activity {number[i]} is cancelled", "an earlier swap of the same tensor", at)
    out[number[~bad]] = True
    return out


def queue_discipline(acts: ActivityTimes, tiers: Tiers, found: Findings) -> None:
    """ActivityTimes of a queue start in the order of submission, no more at once than its engine has slots (streams: one)."""
    queues = np.unique(acts.queue).tolist()
    for q in queues:
        i = np.flatnonzero((acts.queue == q) & ~acts.cancelled)
        shown = tiers.name(q)
        late = np.zeros(len(i), bool)
        late[1:] = (acts.start[i][1:] < acts.start[i][:-1]) | (
            (acts.start_record[i][1:] >= 0) & (acts.start_record[i][1:] < acts.start_record[i][:-1])
        )
        first(found, late, lambda k, i=i, s=shown: f"activity {i[k]} overtakes another of {s}", "first in, first out",
               acts.start_record[i])  # fmt: skip
        found.count("turns in queues", len(i))
    sides = {tiers.side(q) for q in queues if q < 0}
    for group in [[q] for q in queues if q >= 0] + [[q for q in queues if q < 0 and tiers.side(q) == s] for s in sorted(sides)]:
        ran = np.flatnonzero(np.isin(acts.queue, group) & (acts.start_record >= 0))
        # At equal times an end goes before a start; +1 at a start, -1 at an end.
        time = np.concatenate([acts.start[ran], acts.end[ran]])
        step = np.concatenate([np.ones(len(ran), np.int64), -np.ones(len(ran), np.int64)])
        order = np.lexsort((step, time))
        running = np.cumsum(step[order])
        limit = tiers.slots[tiers.side(group[0])] if group[0] < 0 else 1
        crowded = running > limit
        if crowded.any():
            at = order[int(np.argmax(crowded))]
            found.say(
                acts.start_record[ran[at]], f"{limit + 1} activities of {tiers.name(group[0])} at once", f"at most {limit}"
            )


def streams_in_order(acts: ActivityTimes, trace: Trace, found: Findings) -> None:
    """A kernel after a wait starts after what the event recorded; the host goes on from a sync when all is done."""
    kernels = np.flatnonzero(acts.queue >= 0)
    if not np.isin(trace.kind, (WAIT, SYNC)).any():
        return
    streams = int(trace.stream.max(initial=0)) + 1
    marks = int(trace.arg[np.isin(trace.kind, (RECORD, WAIT))].max(initial=0)) + 1
    start, end, submit = acts.start[kernels], acts.end[kernels], acts.submit[kernels]
    op, need, host = _wait(trace.kind, trace.arg, trace.stream, start, end, submit, streams, marks)
    found.count("kernels against stream order", len(kernels))
    if op >= 0:
        at = kernels[op]
        if host:
            found.say(acts.record[at], f"operator {op} is submitted before the device has done what a sync waits for",
                      f"not before {_time(need)}")  # fmt: skip
        else:
            found.say(acts.start_record[at], f"operator {op} starts before the event that its stream waits for",
                      f"not before {_time(need)}")  # fmt: skip


@kept()
def _wait(
    kind: Any, arg: Any, stream: Any, start: Any, end: Any, submit: Any, streams: int, marks: int
) -> tuple[int, int, bool]:
    """(operator, when it might have gone on, whether the host was to wait) of the first that did not, or (-1, ...).

    An event stands for all work before it on its stream, waits included (CUDA runtime API, cudaEventRecord).
    """
    last = np.zeros(streams, np.int64)
    need = np.zeros(streams, np.int64)
    mark = np.zeros(marks, np.int64)
    host = 0
    for e in range(kind.size):
        s = stream[e]
        if kind[e] == OP:
            o = arg[e]
            if o >= start.size:
                break
            if start[o] < need[s]:
                return o, need[s], False
            if submit[o] < host:
                return o, host, True
            last[s] = max(last[s], end[o])
        elif kind[e] == RECORD:
            mark[arg[e]] = max(last[s], need[s])
        elif kind[e] == WAIT:
            need[s] = max(need[s], mark[arg[e]])
        elif kind[e] == SYNC:
            host = max(host, last.max())
    return -1, 0, False


def first(found: Findings, wrong: npt.NDArray[Any], what: Any, expected: str, records: Any = None) -> None:
    """Say the first row of `wrong`, at its record (the row itself when there is no table of records)."""
    if wrong.any():
        i = int(np.argmax(wrong))
        found.say(i if records is None else int(records[i]), what(i), expected)


def _name(kind: Any) -> str:
    return KINDS[int(kind)]


def _time(ns: int) -> str:
    return "its end, which never comes" if ns >= NEVER else f"{ns} ns"
