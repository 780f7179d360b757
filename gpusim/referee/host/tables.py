"""What the walk over the host's records knows: its state, the costs of calls, and tables of queues, tensors and activities."""

from __future__ import annotations

from typing import Any, NamedTuple

RECENT = 32  # blocks given back whose addresses are compared one by one with those of a new one

# The host's state: one row of numbers.
(
    NOW,        # when its present step began, ns
    OWE,        # what the calls of this step take
    STAGED,     # when the copies that it takes part in are there
    DRAIN,      # 1: it has given memory back, and waits for the device before it goes on
    OWED,       # what that costs then
    EVENT,      # the next event of the trace
    PAID,       # 1: the launch of the operator at hand is paid
    AFTER,      # 1: the present step has carried out an event; 2: the tensor has begun and has no block yet;
                # 3: the event is tried again, since its copies are there, and other steps may come before that
    UNIT,       # that tensor
    IDLE,       # when all that was submitted has ended
    COPIED,     # 1: the operator submitted last is a copy between host and device
    ALLOC_NS,   # of the time since the last operator: in the allocator,
    SYNC_NS,    # and in waits for the device
    FREED,      # blocks given back so far
    PHASE,      # why the host goes on when it does: an index into CAUSES
    REARRANGED, # the last record of the latest defragmentation, which has paid for all of them
    BLUR,       # ns that rounding the costs of device calls one by one may take away
    BLURRED,    # the same, of the whole run
    UNSURE,     # 1: the log does not tell whether a prefetch was still waiting when an operator asked for its tensor
    REACHED,    # one more than the event whose recorded time has come already
    TRIED,      # when the operator asked for its tensors, before it waited for the device; -1: as it is submitted
    LATEST,     # the operator submitted last
    HITS, WASTED, CANCELLED, PROMOTED, PREFETCHES,
    HAD,        # of OWE: for host memory, before which nothing of this step is submitted
    WAS_IDLE,   # since when the device was idle as others had it copy something, -1: they did not since the last record
    STIRRED,    # when they did
    SAID,
) = range(31)  # fmt: skip
STATE = SAID + 1

CAUSES = (
    "when its calls before that are done", "when the device is idle", "when there is room in the queue",
    "when its copies are there", "at the recorded time",
)  # fmt: skip
CALLS, IDLES, ROOM, COPIES, RECORDED = range(len(CAUSES))
MOST = 100


class HostCosts(NamedTuple):
    """ns, but for the limits, which count activities."""

    operator: int
    submit: int
    wait: int
    cached: int
    malloc: int
    malloc_per_byte: float
    free: int
    free_per_byte: float
    move_per_byte: float
    queue: int    # kernels that a stream's queue holds
    copies: int   # copies that an engine's queue holds


class HostWalk(NamedTuple):
    """Q queues, streams first; T tensors, A activities, E events, R records."""

    kind: Any      # int64[R] columns of the log
    a: Any
    b: Any
    addr: Any
    size: Any
    t: Any

    event: Any     # int64[E] columns of the trace
    arg: Any
    stream: Any
    time: Any
    read_start: Any
    read_id: Any
    write_start: Any
    write_id: Any
    bytes: Any     # int64[T]
    home: Any      # int64[T]
    program: Any   # uint8[O] 1: the operator copies between host and device
    call: Any      # int64[O] what the host's thread carries out itself, ns; below 0: when the device is idle

    queue: Any     # int64[A] its queue, streams first
    done: Any      # int64[A] when it and all before it in its queue have ended
    cancelled: Any
    started: Any   # int64[A] the record of its start
    submitted: Any # int64[A] the record of its submission
    turn: Any      # int64[Q + 1] activities of queue q are order[turn[q]:turn[q + 1]]
    order: Any     # int64[A]
    role: Any      # int64[Q] 0 stream, 1 to the device, 2 from it
    waits: Any     # uint8[memories] 1: the host waits for copies of this memory
    costs: Any     # float64[memories, 3] of a block of this memory, ns: by call, by byte, and by byte given back
    kept: Any      # uint8[memories] 1: a block that is given back is used again, and has a power of two as its size

    now: Any       # int64[24] the host's state
    count: Any     # int64[Q] submitted so far
    after: Any     # int64[T, Q] when an access may begin
    use: Any       # int64[T, Q] when the last uses end
    prior: Any     # int64[T] of a prefetch that has not begun: what it waits for in its own queue
    out: Any       # int64[T] the copy out of a tensor that leaves, -1 none
    moving: Any    # uint8[T] 1: its prefetch was called off because an operator wants it now
    sent: Any      # int64[T] its latest copy from the device, or from a lent memory to another tier; -1 none
    fetched: Any   # int64[T] its latest copy to the device, -1 none
    gone: Any      # int64[T] the record with which its copy below was given up, -1 none was
    brought: Any   # int64[T] the prefetch that nothing has used yet, -1 none
    wanted: Any    # int64[A] the operator that wants the copy, as the engine has it: the last one submitted before it,
                   # or the next where that has called a prefetch off; NEVER of an early one
    marks: Any     # int64[streams + stream events, Q]
    freed: Any     # int64[RECENT, 2] addresses
    freed_use: Any # int64[RECENT + 1, Q]

    blocks: Any    # int64[memories, 64, 2] of each power of two: blocks that there are, and that hold something
    submit: Any    # int64[A] when the host submits it, ns
    need: Any      # int64[A, 3] what the activity waits for: other streams, copies to the device, copies from it
    alloc_ns: Any  # int64[A] of the host's time before it
    sync_ns: Any
    late: Any      # int64[A] the latest prefetch that an operator uses, -1 none
    said: Any      # int64[MOST, 4] record, expected, found, cause
