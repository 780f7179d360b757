"""The event log: what one run did, record by record, enough for the referee to recompute everything.

Two orders are interleaved in the one array.  *Host* records stand in program order and carry host time; *device* records
(START, END) carry device time.  Records are appended in the order in which the engine processed them, time never falls.

    kind        a         b           addr       bytes
    CREATE      unit      -           -          requested size       the tensor begins (an alloc of the trace)
    PLACE       unit      memory      address    block size           a block of this memory holds the unit from here on
    UNPLACE     unit      memory      address    block size           ... and no longer
    DESTROY     unit      -           -          requested size       the tensor ends (a free of the trace)
    ISSUE       op        stream      activity   bytes over links     an operator is submitted; a kernel sends nothing
    COPY        unit      src<<8|dst  activity   moved bytes          a swap is submitted
    RESERVE     free      memory      address    bytes                the allocator takes memory from the device
    RELEASE     free      memory      address    bytes                ... and gives it back
    DROP        unit      memory      address    block size           a valid copy is given up without moving (clean or dead)
    OOM         unit      memory      largest    requested size       no room, nothing left to evict
    MOVE        unit      memory      address    block size           the unit's block, and its data, lie here from now on
    CANCEL      unit      -           activity   bytes                a swap that has not started will never do so
    START, END  activity  queue       -          -                    an operator or swap runs
    DEFRAG      records   when        events     -                    the device is idle; the next records rearrange memory
    DECIDE      unit      what        -          block size           the release policy or the plan has had this done
    REDIRECT    unit      src<<8|dst  activity   bytes                a swap that has not started goes another way
    STALL       activity  cause       activity   ns                   its stream stood still, waiting for the other one's end
    TURN        what      decision    operator   ns or bytes          of programs that a policy gives turns on one GPU

A device call with free = 1 costs the host nothing: memory with two addresses is booked where it is in use.  DEFRAG says after
how many events of the trace it is, and when: + 1 where the next one, an operator, has paid its launch, + 2 where that has found
no room and tries again.  DECIDE: the release policy evicted the unit (RELEASED); the plan evicted it (PLANNED_OUT), brought it
in (PLANNED_IN), or could not do what it wanted (SKIPPED: nothing came before).  Where devices lend memory: the unit leaves a
lent memory whose lender wants it back (CALLED_BACK: the next `addr` records do it, at a time that is not the host's); the host
waits for so many free bytes of its own device (WANTS), and goes on with them, or with all that will come (REGAINED).

STALL stands before the START of an activity of a stream with kernels, one record for each cause (STALLS), in the order of
time: together they last from the moment at which the stream fell idle to the start.  The activity is the one whose end was
waited for, -1 where there was none: the host, the gap between launches, a turn among others.

TURN: by a decision, of a run counted from 0, the program has the next turn of at most so many ns, which ends with that operator
too (GIVEN; -1: with none); so many of its bytes leave before that (LEAVES); its blocks may take so many from then on (LIMITED).
When a turn has begun before which memory of whole programs moved (BEGAN).

Memory 0 is the device's, the others are the tiers below it, nearest first (1: the host's); they have no addresses (-1).  Of
compressed swaps, the block below is what the compressed copy takes, and moved bytes are those that cross the link.  A swap is
to or from the device, or called back from one tier to another; 1<<16 in its `b` says that nothing waits for it yet.  Queues of
swaps are -1, -2 and so on.  Activities
are numbered from 0 in the order of their submission.  An operator reads and writes what the trace names, from START to END.
"""

from __future__ import annotations

import numpy as np

VERSION = 3  # of the records' meaning: 1 had no DEFRAG and no DECIDE, 2 no STALL
READ = (2, 3)  # what this program can still read
(
    CREATE, PLACE, UNPLACE, DESTROY, ISSUE, COPY, RESERVE, RELEASE, DROP, OOM, START, END, MOVE, CANCEL, DEFRAG, DECIDE, STALL,
    REDIRECT, TURN,
) = range(1, 20)  # fmt: skip
KINDS = (
    "", "create", "place", "unplace", "destroy", "issue", "copy", "reserve", "release", "drop", "oom", "start", "end", "move",
    "cancel", "defrag", "decide", "stall", "redirect", "turn",
)  # fmt: skip
RELEASED, PLANNED_OUT, PLANNED_IN, SKIPPED, CALLED_BACK, WANTS, REGAINED = range(7)
GIVEN, LEAVES, LIMITED, BEGAN = range(4)  # of TURN
STALLS = ("swap_in", "swap_out", "alloc", "launch", "sync", "event", "sms", "copy_engine")  # stall_..._ns of results.metrics
BY_SWAP_IN, BY_SWAP_OUT, BY_ALLOC, BY_LAUNCH, BY_SYNC, BY_EVENT, BY_SMS, BY_COPY_ENGINE = range(len(STALLS))

LOG = np.dtype(
    [("t", np.int64), ("kind", np.int64), ("a", np.int64), ("b", np.int64), ("addr", np.int64), ("bytes", np.int64)],
    align=True,
)
