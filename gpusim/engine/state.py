"""The tables of the compiled island: the whole state of a simulation as flat arrays that can be copied and restored.

      hosts ──issue──▶ queues of activities ──start──▶ flows on links
        │                (streams, copy engines)            │
        ▼                                                   ▼
      units (where each tensor's bytes are)  ◀──finish── event heap

A program at work is a row of `Processes`, which says on which device, from which host and for which tenant it runs, and where
its tables are.  Its units, queues and activities are numbered within it.
Times are int64 nanoseconds, sizes int64 bytes, rates float64 bytes per nanosecond (= GB/s).
"""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import numpy as np

from gpusim.base.compiled import by_pointer
from gpusim.base.tables import record, signature
from gpusim.policies import contract
from gpusim.results.log import LOG, STALLS
from gpusim.trace.trace import ACTIVITIES, COPY_PEER

i4, i8, f8, u1 = np.int32, np.int64, np.float64, np.uint8
NEVER = 2**62


# Why `run_until` came back; AGAIN stays inside: the host comes back to the step, when it has waited or memory is rearranged.
# RESHARE stays within the engine too: a program that shares links with others has changed what flows.
# DESERTED: what it waits for never comes, as a program on another device has run out of memory.
# ARBITRATE stays within the engine: what runs on a device that several programs have has changed.
# PAGED: managed memory is full, or operators have ended that are to be seen.
# WAKES stays within the engine: the driver of a GPU turns to the faults of another process.
(
    REACHED, FINISHED, OUT_OF_MEMORY, HOST_OUT_OF_MEMORY, ASK, LOG_FULL, STUCK, NEXT_CHUNK, BAD_ANSWER, AGAIN, RESHARE,
    DESERTED, ARBITRATE, PAGED, WAKES,
) = range(15)  # fmt: skip

# Instructions of a host, one per event of the workload.
I_ALLOC, I_FREE, I_OP, I_SYNC, I_RECORD, I_WAIT, I_UNTIL, I_PHASE = range(8)
INSTRUCTION = record([("kind", i8), ("arg", i8), ("stream", i8)])

# A program at work: a host's process for a tenant on a device.  It has tables of its own, which are found by their address.
PROCESS = record(
    [("device", i8), ("host", i8), ("tenant", i8),
     ("ended", i8),        # it has come to its end, or memory has run out
     ("stuck", i8),        # it has no room below for what a lender wants back
     ("island", i8), ("program", i8), ("policies", i8)]  # addresses of its Island, Instructions and PolicyTables
)  # fmt: skip
TURN = record(
    [("process", i8),
     ("lookahead", i8),    # ns: what one process does reaches another so much later, NEVER when they share nothing
     ("now", i8)]          # of those that share links
)  # fmt: skip

# What a host waits for: the device, room in a queue, copies that it takes part in, memory that it has lent.
RUNNING, DRAIN, SPACE, ENDED, STAGING, CALLING = range(6)
HOST = record(
    [("time", i8), ("pc", i8), ("end", i8), ("state", i8), ("queue", i8), ("alloc_ns", i8), ("sync_ns", i8),
     ("paid", i8),         # the launch of the operator at hand has been paid
     ("copied", i8),       # the operator submitted last copies between host and device
     ("wake_ns", i8),      # what the end of a wait still costs
     ("prefetching", i8),  # its kernel is submitted, the prefetch policy has yet to be heard
     ("more", i8),         # instructions follow after `end`, in the next chunk
     ("planned", i8),      # next action of the plan
     ("staged", i8),       # it has to wait for copies, up to the last row of the marks
     ("unlent", i8),       # what others still have of its device's memory stays there: the block at hand is had otherwise
     ("had", i8),          # what it has spent in this step on host memory: what it submits comes so much later
     ("operator_ns", i8),  # what it needs to submit an operator of the program
     ("submit_ns", i8), ("wait_ns", i8), ("cached_ns", i8)]  # what a launch, a wait for a copy and a cached block cost it
)  # fmt: skip

# A queue starts its activities first in, first out: a stream runs one kernel at a time, a copy engine `slots` copies.
STREAM, TO_DEVICE, FROM_DEVICE = range(3)
# Counts only grow: submitted >= started >= done; `done` counts the completed prefix, so "the first n are done" is done >= n.
QUEUE = record(
    [("base", i8), ("mask", i8), ("slots", i8), ("limit", i8), ("gap", i8), ("submitted", i8),
     ("started", i8), ("done", i8), ("running", i8), ("free_at", i8),
     ("role", i8),         # STREAM, or the direction of its copies
     ("pair", i8),         # the queue that uses the same slots, -1: none does; the first of both holds what is waited for
     ("wanted", i8),       # so many of its first activities are waited for
     ("waiters", i8), ("waits_for", i8), ("next_waiter", i8),  # queues that look again when it gets on; 1 + number, 0: none
     ("priority", i8),     # of a stream; the lower goes first
     ("wants", i8),        # 1 + time since when its first lacks nothing but multiprocessors, 0: it does not wait for any
     ("granted", i8),      # it has them, or a slot of a copy engine, and may start
     ("engine", i8),       # by direction, whose slots its swaps share with the program's own copies; 0: the slots are its own
     ("mate", i8),         # the other queue of such swaps in its direction, -1: there is none
     ("line", i8), ("ahead", i8), ("next_in_line", i8),  # in which engine's it stands, 0: none, and between which queues
     ("came", i8),         # ns: since when
     ("computes", i8)]     # a stream with kernels: what it waits for counts
)  # fmt: skip
# A copy engine of the GPU where the program's own copies take turns with swaps; rows by direction, that of streams is unused.
ENGINE = record([("slots", i8), ("running", i8), ("first", i8), ("last", i8)])  # of the line: 1 + number of a queue, 0: none
# An activity's kind: the operator's of trace.ACTIVITIES, or a swap.  Its way says how its bytes go; none: it takes its time.
SWAP = len(ACTIVITIES)
ACTIVITY = record(
    [("arg", i8), ("bytes", i8), ("number", i8), ("submit", i8), ("start", i8), ("end", i8), ("alloc_ns", i8), ("sync_ns", i8),
     ("duration", i8),
     ("ends", i8),         # ns: when its own time is over if nothing slows it down; under managed memory, when its warps stop
     ("stopped", i8), ("stalled", i8),  # ns: since when they stand; how long they have
     ("waited", i8),       # ns: how long it has waited for those of other programs
     ("due", i8),          # a swap: the operator that waits for it, NEVER while none does
     ("brought", i8), ("brought_by", i4),  # a kernel: the latest prefetched copy it needs, as a count of this queue
     ("kind", i4), ("way", i4), ("queue", i4),
     ("behind", i4),       # the queue that it was last seen to wait for
     ("gives", i8),        # bytes of a lent memory that are free again when it ends
     ("gives_to", i4),     # the account of that memory
     ("called", np.int8),  # the lender counts on them
     ("done", np.int8),
     ("paged", np.int8),   # its warps have yet to stop, perhaps at faults
     ("cancelled", np.int8),  # it will not run, and is passed over when its turn comes
     ("parts", np.int8)]      # what has to end beside the next thing that does: a kernel's reads and writes below the device,
                              # further exchanges of a batch of sends and receives
)  # fmt: skip

UNIT = record(
    [("size", i8), ("addr", i8), ("block", i8),
     ("wire", i8),         # bytes that a swap moves over the link
     ("stored", i8),       # bytes that a copy takes in the memories below
     ("brought", i8),      # count of the copy that prefetched it in its queue, 0 when it was used since
     ("slot", i8),         # position in the list of residents, -1 when not resident
     ("lent", i8),         # ns: since when its copy is in another device's memory
     ("sent", i8), ("fetched", i8),  # counts of its latest copy to a memory below, and of the last one from there since, in
                           # their queues; 0: there was none
     ("sent_as", i8),      # the number of the first of them
     ("uses", i8), ("born", f8), ("arrived", f8), ("last", f8), ("next", f8),
     ("stream", i4),
     ("sent_by", i4), ("fetched_by", i4),  # those queues
     ("brought_by", i4),      # that of the prefetch
     ("stays", np.int8),      # it is never on the device: kernels use it in the nearest tier
     ("stage", np.int8),      # trace.roles.stages, for policies that read it
     ("live", np.int8),       # created and not destroyed
     ("data", np.int8),       # holds something worth copying
     ("tier", np.int8)]       # the memory below that holds a valid copy, 0: none does
)  # fmt: skip

# How the memory of a tier is had: all beforehand, in a pool by powers of two, a block for each copy.
READY, GROW, FRESH = range(3)
HELD, USED = range(2)  # of Island.pools: blocks that the pool has, and how many of them hold something

# Memory 0 is the device's, which the allocator manages; the tiers below it are numbered from 1, nearest first.
MEMORY = record(
    [("capacity", i8), ("used", i8), ("peak", i8),
     ("spare", i8),        # bytes of copies whose units are on the device too
     ("into", i8), ("out", i8),  # bytes of swaps from and to the tier
     ("q_in", i8), ("q_out", i8), ("way_in", i8), ("way_out", i8),
     ("q_early", i8), ("q_late", i8),  # of copies that nothing waits for yet; q_in and q_out where these have no own queues
     ("hand", i8),         # where the search for a copy that can be dropped goes on
     ("waits", i8),        # the host waits for its copies
     ("account", i8),      # of the lender whose memory it is, -1: it is exclusive
     ("falls", i8),        # of a lender: the way to the first memory below that is the program's own
     ("own", i8),          # of such a memory: its number among them
     ("given", i8),        # of a lender: units that it has taken in
     ("place", i8), ("far", i8),  # in the chain, from 1 on; 1: in another host
     ("pool", i8),         # READY, GROW, FRESH
     ("take_ns", f8), ("take_per_byte", f8), ("give_per_byte", f8)]  # what a block costs, and giving it back
)  # fmt: skip

# NO_WAY, then the kinds of activities that move bytes, TIMED_COPY, and two for the swaps of each tier, perhaps through a codec.
NO_WAY = 0
MEETS = -1  # of what waits for activities of other programs: they have one way together
TIMED_COPY = COPY_PEER + 1  # of copies with recorded times: through the device's memory alone
SWAPS = TIMED_COPY + 1
# A memory that programs on other devices may use.  capacity >= held + lent at all times.
ACCOUNT = record(
    [("capacity", i8), ("lends", i8),  # bytes; those that others have together, at most
     ("held", i8),         # by the program of the device; what it gives back while the device works it holds until that is idle
     ("booked", i8),       # the same as its allocator has it
     ("lent", i8), ("peak", i8),  # what others have, or have been promised
     ("process", i8),      # the program of the device, -1: there is none
     ("program", f8),      # how far that is, ns of program time
     ("bucket", f8),       # program time of a column of Island.ahead, ns
     ("wanted", i8),       # free bytes for which its host waits, 0: it does not
     ("asked", i8),        # it has begun to: others have yet to hear of it
     ("coming", i8)]       # bytes of copies under way that it counts on
)  # fmt: skip

WAY = record(
    [("rate", f8), ("latency", i8), ("curve", i8), ("route", i8), ("route_end", i8),
     ("passes", i8)]       # how often its bytes pass the device's memory, where that is shared: entries behind route_end
)  # fmt: skip
LINK = record(
    [("rate", f8), ("left", f8), ("users", i8),
     ("used", i8)]         # of row i: the i-th of those links that flows are on
)  # fmt: skip
# Without a way: a kernel's own work, in bytes of the device's memory, or in ns when it needs none.
FLOW = record(
    [("process", i8), ("activity", i8), ("way", i8), ("passes", i8), ("remaining", f8), ("cap", f8), ("rate", f8),
     ("fixed", i8),
     ("route", i8), ("route_end", i8),  # the links that it shares now: of its way, and the memory where that is tight
     ("kept", i8),         # 1 + its row of `traffic`, 0: it has none
     ("granted", f8), ("need", f8)]  # of a kernel's own work: the share of its multiprocessors that it has, what it needs alone
)  # fmt: skip
# What flows, and when the next of it ends: `time` is that up to which all have run, ns after `base`.
FLUID = record(
    [("time", f8), ("base", i8), ("tick", i8), ("flows", i8),
     ("first", f8),        # the exact time that `tick` rounds up, ns after `base`
     ("reshare", i8),      # the set of flows has changed
     ("calls", i8),        # a lender's host waits: there is something to do about it
     ("arrivals", i8),     # rows of `arrived`
     ("kept", i8)]         # flows so far, of which `traffic` has the first
)  # fmt: skip
# All that has flowed, where a log of that is kept: what for, so many bytes at this rate at most, and what was left of it.
TRAFFIC = record([("begin", i8), ("end", i8), ("process", i8), ("way", i8), ("passes", i8),
                  ("size", f8), ("cap", f8), ("left", f8)])  # fmt: skip
# Multiprocessors that a kernel or collective has from now on, where a log of that is kept; -1: it has ended.
GRANT = record([("time", i8), ("operator", i8), ("sms", i8), ("wants", i8), ("keeps", i8), ("priority", i8)])
# An activity that has started and goes on when others have, too: see `engine.fabric`.
ARRIVAL = record([("process", i8), ("activity", i8)])

# A kernel, or a collective, that runs, and what it has of the device.
# Its own work: ends at a known time, is a flow, has no multiprocessor, is done, stands until page faults are served.
TIMED, FLOWS, STANDS, OVER, WAITS = range(5)
RUN = record(
    [("activity", i8), ("priority", i8), ("work", i8),
     ("sms", i8), ("granted", i8),  # multiprocessors that it can use, and has
     ("whole", i8),        # its grid is resident at once when it has all of them;
     ("held", i8),         # then it keeps them
     ("begins", f8),       # ns of its program's part until its last blocks have begun;
     ("until", f8),        # when they have, by the clock of that part, below 0: not yet known
     ("need", f8),         # of the memory's bandwidth when nothing slows it down, bytes/ns
     ("left", f8)]         # of its own work while it stands, ns
)  # fmt: skip

# Events of the heap, in order of priority at equal times; the end of a flow goes before all of them.
E_MOVE, E_KERNEL, E_READY, E_READ, E_WRITE, E_PAGES = range(6)
EVENT = record([("time", i8), ("order", i8), ("kind", i8), ("arg", i8)])

# Managed memory: kernels of a stream stop at page faults, until a driver lets them go on: both are behind an address.
PAGER = record(
    [("tables", i8), ("door", (i8, 2)),  # addresses; 0: there is none
     ("next", i8),         # ns: when the driver goes on, NEVER while it waits for others
     ("flows", i8),        # what it moves, and what kernels access remotely, are flows on the links
     ("shares", i8),       # the CPU touches memory while kernels run
     ("failed", i8),       # memory is full and may not be evicted
     ("stops", i8), ("ended", i8),  # Python wants to see each so many operators that have ended; how many have since
     ("due", i8),          # it is to be told
     ("process", i8),      # its number among those whose kernels one driver serves
     ("wakes", i8),        # 1 + the process whose faults the driver turns to now, 0: none
     ("acted", i8),        # of what the program does beside kernels, how much is done
     ("grants", i8)]       # so far, of which `Island.grants` has the first
)  # fmt: skip
LAUNCHED, STOPPED, DUE, COPIED = range(4)  # what is told: warps begin, they have stopped; the driver goes on, a transfer ended
WARPS = record(
    [("operator", i8), ("activity", i8),  # what runs, and its row
     ("go", i8),           # its warps go on now,
     ("stop", f8), ("work", f8),  # until this moment, ns, if nothing slows them down: so much of its own work
     ("read", f8), ("written", f8), ("peer", f8),  # bytes that they access meanwhile in host memory, in another GPU's
     ("last", i8)]         # then they have ended; else they have faulted
)  # fmt: skip
# What the driver moves for one purpose: legs that follow one another, each of them a flow, cut into pieces.  Of the transfers
# of a GPU the first are of its batch and of what comes or leaves ahead of need, then those that each stream's kernel waits for.
LEAVES, FILLS, CROSSES, COMES, LEGS = range(5)  # to the host, zeroes in the GPU's memory, from another GPU, from the host
OF_BATCH, AHEAD, OF_STREAM = range(3)
IDLE, ASKED, MOVES = range(3)
TRANSFER = record(
    [("state", i8), ("leg", i8),
     ("at", f8),           # ns: when the leg at hand begins, or its next piece; in the end, when all was over
     ("ready", f8),        # ns: it is not over before
     ("bytes", (f8, LEGS)), ("ns", (f8, LEGS)),  # that are left of each leg, and how long they take alone
     ("piece", f8),        # bytes that move at once at most
     ("moving", f8), ("takes", f8), ("since", i8),  # the piece at hand, how long it takes alone, the tick at which it was asked
     ("late", i8)]         # others were on its links
)  # fmt: skip

# Time, and what the island does next.
CLOCK = record(
    [("now", i8),
     ("process", i8), ("coupled", i8),  # its number among those that share its links, and whether there are others
     ("queues", i8), ("streams", i8),  # streams: how many of the queues, which are the first
     ("scheduled", i8), ("events", i8),  # pushed on the heap so far, and in it now
     ("number", i8),       # of the next activity
     ("woken", i8),        # something ended or was submitted: look for activities that can start
     ("tight", i8), ("demand", f8),  # the memory's bandwidth does not suffice; what flows takes of it, bytes/ns
     ("running", i8),      # rows of `running`
     ("wanting", i8),      # queues whose first lacks nothing but multiprocessors
     ("unsettled", i8),    # they may start, or multiprocessors are to be granted anew
     ("dealing", i8)]      # a copy engine may have a slot for the first in its line
)  # fmt: skip

# One GPU: what calls of its driver cost, the copies under way that programs issued themselves, and what is shared.
DEVICE = record(
    [("copying_in", i8), ("copying_out", i8),
     ("shares_sms", i8), ("shares_memory", i8),  # kernels divide the multiprocessors, kernels and flows the memory's bandwidth
     ("shares_engines", i8),  # those copies take turns with swaps in the copy engines
     ("sms", i8), ("bandwidth", f8),  # that kernels may use together; of its memory, bytes/ns
     ("malloc_ns", i8), ("malloc_per_byte", f8), ("free_ns", i8), ("free_per_byte", f8), ("move_per_byte", f8)]
)  # fmt: skip

# How programs have a device: each its own; one after the other, by turns; all at once.
APART, BY_TURNS, AT_ONCE = range(3)

# What one tenant has on a device: its memory and what is asked of it.
TENANT = record(
    [("program", f8),      # program time of the operator at hand, ns
     ("instructions", i8), ("kernels", i8), ("allocs", i8),  # so far
     ("residents", i8), ("locked", i8),  # units in the lists RESIDENTS and IN_USE
     ("freed", i8),        # blocks given back so far
     ("failing", i8),      # the allocator has refused the block at hand
     ("request", i8), ("request_bytes", i8),  # what could not be done when the run stops: for this unit, so many bytes
     ("full", i8),         # the tier without room, when that is why
     ("below", i8),        # bytes in all tiers
     ("drain", i8), ("owed", i8),  # the host waits until the device is idle, and then pays so many ns
     ("due", i8), ("defragged", i8),  # its memory is to be defragmented; the instruction, from 1 on, in which it last was
     ("leaving", i8), ("leaving_for", i8),  # bytes that the release policy wants to leave, because of this unit
     ("ranked", i8),       # copies without a waiting operator have queues of their own
     ("account", i8), ("lends", i8),  # of its device's memory, and whether others may use that
     ("recalls", i8),      # the queue of copies from one memory below to another
     ("beside", i8),       # other programs run on its device: APART, BY_TURNS, AT_ONCE
     ("part", f8),         # share of the time of its kernels' multiprocessors; 1: no other tenant uses them
     ("changed", i8),      # it has begun or ended to run there, or to want to
     ("limit", i8),        # bytes of blocks at most, whatever the allocator holds; 0: as many as that gives
     ("left_by", i8),      # the number behind the last of what has left for that, 0: it has not
     ("remote", i8)]       # kernels read and write below the device, by the last two ways
)  # fmt: skip

# How the policies are asked, and what is left of an answer.
RULES = record(
    [("form", i8), ("touches", i8), ("sample", i8), ("random", i8), ("asks", i8),  # the evict policy
     ("asked", i8), ("asked_at", i8), ("asked_time", f8),  # its victims: how many, the next one, when it was asked
     ("propose", i8), ("may_evict", i8),  # the prefetch policy: there is one; room is made for it
     ("defrag", i8),
     ("pool", i8),         # there is a pool policy
     ("release", i8),      # there is a release policy
     ("decides", i8),      # what is decided outside: BY_POLICIES, VICTIM, DEPTH
     ("paused", i8)]       # 1 + the host whose step waits for that decision, 0: none does
)  # fmt: skip

# How far the buffers are filled that Python reads.
BUFFERS = record(
    [("log_on", i8), ("logged", i8), ("log_room", i8), ("notes", i8),
     ("bucket", i8), ("rows", i8)]  # instructions in a row of the samples, and rows begun
)  # fmt: skip

COUNTS = record(
    [("busy", i8), ("sharing", i8),
     ("h2d_bytes", i8), ("d2h_bytes", i8), ("swap_ins", i8),
     ("swap_outs", i8), ("clean_drops", i8), ("prefetches", i8), ("prefetch_hits", i8), ("prefetch_late", i8),
     ("prefetch_wasted", i8), ("plan_evictions", i8), ("plan_prefetches", i8), ("plan_skipped", i8),
     ("prefetch_promoted", i8), ("prefetch_cancelled", i8), ("release_evictions", i8), ("release_bytes", i8),
     ("remote_read", i8), ("remote_written", i8),
     ("requested", i8), ("requested_peak", i8), ("requested_total", i8), ("allocated_peak", i8), ("allocated_total", i8),
     ("reserved_peak", i8), ("internal_at_peak", f8),
     ("copied_in", i8), ("copied_out", i8), ("collective", i8), ("collective_wait", i8),
     ("nvme_read", i8), ("nvme_written", i8), ("transfer", i8), ("host_work", i8), ("shared_in", i8), ("shared_out", i8),
     ("recalls", i8), ("recall_bytes", i8), ("recall_wait", i8),
     ("failures", i8), ("device_allocs", i8), ("device_frees", i8), ("defrags", i8), ("moved_bytes", i8),
     ("external_sum", f8), ("external_samples", i8), ("op", i8)]
)  # fmt: skip

SAMPLE = record([("time", i8), ("op", i8), ("allocated", i8), ("reserved", i8), ("requested", i8), ("host", i8)])
FREED = record([("start", i8), ("end", i8)])
NOTE = record([("kind", i8), ("unit", i8), ("size", i8)])
N_INSERT, N_TOUCH, N_EVICT, N_FREE = range(4)

# How the allocator is defragmented: see policies.defragment.
NO_DEFRAG, SLIDE, REMAP = range(3)

# How an evict policy is asked: see policies.registry.
NO_EVICTION, ORDERED, SCORE, SCORE_NOW, ASKED = range(5)

# Where the island stops and asks for a decision (engine.control.deciding): nowhere, at each victim, before each proposal.
BY_POLICIES, VICTIM, DEPTH = range(3)

RECENTLY_FREED = 32  # freed ranges that are compared with a new block one by one; older ones count as touching every block


WHERE, LOCKED, SPARE = range(3)   # rows of Island.flags: where it is; it may not leave; the tier whose copy it can do without
RESIDENTS, VICTIMS, PROPOSED, IN_USE = range(4)        # rows of Island.lists; victims: asked for; in use: locked


# The tables.  Of each field: the type of an element, then the length of each axis, a number or a name.


@by_pointer
class Island(NamedTuple):
    """All tables of one simulation.  Everything but the program (the workload, read only) changes as time passes.

    Q queues: streams first, then copy engines; A activities: the sum of the queues' rings; U units; M memories.
    """

    clock: Annotated[Any, CLOCK, 1]
    counts: Annotated[Any, COUNTS, 1]
    stalls: Annotated[Any, i8, len(STALLS)]  # ns, by cause
    devices: Annotated[Any, DEVICE, 1]
    tenants: Annotated[Any, TENANT, 1]
    hosts: Annotated[Any, HOST, 1]
    queues: Annotated[Any, QUEUE, "Q"]
    engines: Annotated[Any, ENGINE, 3]
    look: Annotated[Any, u1, "Q"]          # the first of the queue may be able to start
    ready: Annotated[Any, i8, "Q"]         # and from this moment on, when the gap of its queue was all that it waited for
    activities: Annotated[Any, ACTIVITY, "A"]
    need: Annotated[Any, i4, "A", "Q"]     # how many of each queue must be done before an activity may start: below 2**31
    units: Annotated[Any, UNIT, "U"]
    after: Annotated[Any, i4, "U", "Q"]    # what an access to the unit must wait for: its copies, former users of its block
    use: Annotated[Any, i4, "U", "Q"]      # the last activity of each queue that touches the unit's block
    memories: Annotated[Any, MEMORY, "M"]  # of the first row nothing is read
    accounts: Annotated[Any, ACCOUNT, "accounts"]  # of all programs of a machine: see engine.memory.lending
    ahead: Annotated[Any, i8, "accounts", "buckets"]  # bytes that each device's program holds at most, by its program time
    pools: Annotated[Any, i8, "M", 64, 2]  # of each memory and power of two: see HELD
    lists: Annotated[Any, i8, 4, "most units alive at once"]  # see RESIDENTS
    flags: Annotated[Any, u1, 3, "U"]      # see WHERE
    ways: Annotated[Any, WAY, "ways"]      # SWAPS + 2 * tiers + falls + 2: the last two are of kernels that read, write below
    fluid: Annotated[Any, FLUID, 1]
    link: Annotated[Any, LINK, "links"]
    route: Annotated[Any, i8, "links of all ways"]  # of each way: WAY.route .. route_end
    flow: Annotated[Any, FLOW, "flows"]    # streams and slots of copy engines
    traffic: Annotated[Any, TRAFFIC, "traffic"]  # one row: no log is kept
    grants: Annotated[Any, GRANT, "grants"]  # one row: no log is kept
    arrived: Annotated[Any, ARRIVAL, "streams"]
    running: Annotated[Any, RUN, "streams"]  # in the order of their starts
    pager: Annotated[Any, PAGER, 1]
    warps: Annotated[Any, WARPS, "streams"]
    transfers: Annotated[Any, TRANSFER, "transfers"]  # of managed memory: OF_STREAM + streams
    heap: Annotated[Any, EVENT, "events"]
    freed: Annotated[Any, FREED, RECENTLY_FREED]
    freed_use: Annotated[Any, i4, RECENTLY_FREED + 1, "Q"]  # last row: all older ones together
    marks: Annotated[Any, i4, "marks", "Q"]  # what each stream, then each recorded stream event, then the host waits for
    began: Annotated[Any, i8, "O"]         # ns: when each operator began on the device, NEVER before
    ended: Annotated[Any, i8, "O of managed memory"]  # and ended
    stalled: Annotated[Any, i8, "O of managed memory"]  # ns: for which it stood meanwhile


@by_pointer
class Instructions(NamedTuple):
    """A chunk of work for the island: instructions of one host, O operators and their N accesses of U units; read only."""

    instructions: Annotated[Any, INSTRUCTION, "I"]
    duration: Annotated[Any, i8, "O"]      # ns
    carried: Annotated[Any, i8, 2, "O"]    # kind and way of each operator
    bytes: Annotated[Any, i8, "O"]         # that go this way
    sms: Annotated[Any, i4, 3, "O"]        # multiprocessors that each can use; whether its grid is resident at once on them;
                                           # millionths of its work that are done when its last blocks have begun
    need: Annotated[Any, f8, "O"]          # of the memory's bandwidth by each kernel alone, bytes/ns
    meets: Annotated[Any, i8, "O + 1"]     # where the rendezvous of each operator of way MEETS begin in `Fabric.meetings`
    call: Annotated[Any, i8, "O"]          # ns: of what the host's thread does itself; below 0: it waits for the device first
    clock: Annotated[Any, f8, "O"]         # program time at which each operator starts, ns
    acc_start: Annotated[Any, i8, "O + 1"]
    acc_unit: Annotated[Any, i8, "N"]
    acc_write: Annotated[Any, u1, "N"]
    acc_next: Annotated[Any, f8, "N"]      # program time of the unit's next access, inf when there is none
    first: Annotated[Any, f8, "U"]         # program time of the first access, inf when there is none
    curve: Annotated[Any, f8, "curves", 2, "points"]  # log2 of the size, rate
    plan: Annotated[Any, contract.ACTION, "actions"]  # by operator
    remote: Annotated[Any, i8, 2, "O"]     # bytes that each operator reads and writes below the device; [2, 1] when none does


@by_pointer
class PolicyTables(NamedTuple):
    """State tables of the policies, and the buffers through which the island talks."""

    rules: Annotated[Any, RULES, 1]
    place: Annotated[Any, i8, "place"]
    evict: Annotated[Any, i8, "evict"]
    evict_keys: Annotated[Any, f8, "keys"]
    params: Annotated[Any, f8, "parameters of the score"]
    facts: Annotated[Any, f8, len(contract.FACTS)]
    pool_params: Annotated[Any, f8, "parameters of the pool policy"]
    pool_facts: Annotated[Any, f8, len(contract.POOL_FACTS)]
    prefetch: Annotated[Any, i8, "prefetch"]
    release: Annotated[Any, i8, "release"]
    release_weights: Annotated[Any, f8, "weights"]
    release_params: Annotated[Any, f8, "parameters of the release policy"]
    defrag: Annotated[Any, f8, "parameters of the defrag policy"]
    moved: Annotated[Any, i8, "moved"]     # what a compaction moved, 4 numbers of each unit
    verbs: Annotated[Any, i8, "verbs", 2]  # addresses of the compiled verbs, see base.compiled.address
    buffers: Annotated[Any, BUFFERS, 1]
    log: Annotated[Any, LOG, "log"]
    samples: Annotated[Any, SAMPLE, "samples"]
    notes: Annotated[Any, NOTE, "notes"]   # events for policies in plain Python


@by_pointer
class Processes(NamedTuple):
    """P programs that run side by side on one clock; `turn` says whose step is at hand."""

    rows: Annotated[Any, PROCESS, "P"]
    next: Annotated[Any, i8, "P"]  # when something happens in each next, ns
    turn: Annotated[Any, TURN, 1]


class PolicyVerbs(NamedTuple):
    """The compiled verbs of the policies a run names, each with its signature."""

    alloc: Annotated[Any, contract.ALLOC]
    free: Annotated[Any, contract.FREE]
    largest: Annotated[Any, contract.LARGEST]
    insert: Annotated[Any, contract.INSERT]
    touch: Annotated[Any, contract.TOUCH]
    remove: Annotated[Any, contract.REMOVE]
    victim: Annotated[Any, contract.VICTIM]
    score: Annotated[Any, contract.SCORE]
    propose: Annotated[Any, contract.PROPOSE]
    note: Annotated[Any, contract.NOTE]
    compact: Annotated[Any, contract.COMPACT]
    remap: Annotated[Any, contract.REMAP]
    due: Annotated[Any, contract.DUE]
    release: Annotated[Any, contract.RELEASING]
    pool: Annotated[Any, contract.SCORE]


ISLAND, PROGRAM, POLICIES, PROCESSES = (signature(each) for each in (Island, Instructions, PolicyTables, Processes))
