"""What a policy is to the engine: compiled verbs of fixed signatures over flat state tables.

One signature per verb lets numba find both the engine loop and every policy in its on-disk cache: the loop takes the verbs
as first-class functions and is never compiled again for a new policy.  A policy *decides*; it never moves bytes, never
counts, and never sees another policy's table.

Common arguments
    S       int64[::1]    the policy's own integer table, made by its `state(...)` function and changed only by its verbs
    X       float64[::1]  the policy's own float table (keys of a heap, weights, ...)
    unit    int64         dense id of what moves (a tensor, a page), 0 <= unit < n_units
    size    int64         bytes of the unit
    key     float64       the value of the policy's score for the unit, 0.0 for a policy without a score

Evict (ordered policies; score policies are a heap over the same verbs)
    insert(S, X, unit, size, key)        the unit became resident
    touch(S, X, unit, size, key)         a resident unit was accessed
    remove(S, X, unit, size, key)        the unit left: key is 1.0 when evicted, 0.0 when its tensor was freed
    victim(S, X, incoming, size, locked) a resident unit that may leave so that `incoming` (size bytes) fits, or -1;
                                         locked[unit] != 0 may not be chosen.  Does not remove: the engine calls remove.
    One more verb is there for policies that have a shorter way when all units have one size and leave only by eviction:
    replay(requests, n_units, capacity, params, seed)
                                         how many of the requests miss in a memory that is empty at first and holds `capacity`
                                         <= n_units units; a miss evicts one unit when it is full.  Decides as the verbs above.

Place (allocators)
    alloc(S, unit, size, stream)         the address (>= 0) of a block for the unit, or -1 when there is no room
    free(S, unit, stream)                gives the unit's block back
    release(S, bytes)                    gives cached memory back to the device, at least `bytes` if it can; returns the bytes
    largest(S)                           the largest request (bytes) for which there is room in what is held now
    The first words of S are the header below, which the engine reads after every call.
    Two more verbs are there for allocators that have them:
    use(S, unit, stream)                 the unit is used on another stream than its own from here on (record_stream)
    command(S, code, a, b)               what only this allocator knows (a private pool, a setting changed while it runs);
                                         the codes stand in the policy's file

    A built-in that plans ahead has one plain Python function more, called once before `state`, which gets its answer as the
    last argument (an empty table when there is no program to show):
    prepare(kind, unit, size, iteration, params)
                                         int64 columns of all requests in order: 1 for an alloc and 0 for a free, the unit,
                                         its bytes, the iteration that the request belongs to (-1: none); returns int64[...]

    Two verbs are for those that can be defragmented:
    compact(S, moved)                    slides the live blocks together, to the lowest addresses; writes (unit, old address,
                                         new address, bytes) of each that moved, lowest first; returns how many
    remap(S)                             gives back whole pages inside of holes, so that as many can be taken in one piece;
                                         returns their bytes

Defrag
    due(P, when, allocs, held, free, largest, size)
                                         1 when the allocator shall be defragmented now.  P: the policy's parameters; when:
                                         REFUSED (an alloc of `size` was, although `free` bytes are; nothing has been evicted
                                         for it yet) or PLACED (one has just succeeded; free and largest are of what is held)

Release
    release(S, X, P, held, allocated, capacity, size, now)
                                         bytes of blocks that shall leave before the program goes on, 0 for none; asked when a
                                         block of `size` bytes has just been given.  P: the policy's parameters; held and
                                         allocated: bytes held from the device and given to units, of `capacity`; now: program
                                         time, ns.  The evict policy chooses which units.

Prefetch
    propose(S, k, acc_start, acc_unit, where, out)
                                         called when kernel k has been issued: writes units to bring in to out[0:n], most
                                         urgent first, returns n.  acc_unit[acc_start[k]:acc_start[k+1]] are the units that
                                         kernel k accesses; where[unit] is ABSENT, HOST, DEVICE or ARRIVING.
    note(S, unit, k, missed)             kernel k accesses the unit; missed is 1 when it had to be brought in on demand

Prefetch, of pages: a score of REGION_FACTS, or a class with methods in plain Python, which may remember what they like
    launched(view, kernel)               a kernel begins: blocks that come while the link is idle; they replace what still waits
    faulted(view, block, pages)          these pages of the block have faulted: what else comes
                                         A block is its number, or (number, first page, pages).  Pages of the block that has
                                         faulted come with the fault; without any, what the driver's tree says does.
                                         view: a `page_view.PageView`

Migrate
    A score of BLOCK_FACTS: above 0 the block belongs into the GPU's memory; or a class with a method `belongs` of such facts.

Score (facts)
    score(facts, params) -> float64      the lowest score leaves first; facts are indexed by FACTS, params by the order of
                                         the policy's own parameters
"""

from __future__ import annotations

import numpy as np
from numba import types

S = types.Array(types.int64, 1, "C")
X = types.Array(types.float64, 1, "C")
FLAGS = types.Array(types.uint8, 1, "C")

INSERT = TOUCH = REMOVE = types.int64(S, X, types.int64, types.int64, types.float64)
VICTIM = types.int64(S, X, types.int64, types.int64, FLAGS)
REPLAY = types.int64(types.Array(types.int32, 1, "C"), types.int64, types.int64, X, types.int64)
ALLOC = types.int64(S, types.int64, types.int64, types.int64)
FREE = types.int64(S, types.int64, types.int64)
RELEASE = types.int64(S, types.int64)
LARGEST = types.int64(S)
USE = types.int64(S, types.int64, types.int64)
COMMAND = types.int64(S, types.int64, types.int64, types.int64)
COMPACT = types.int64(S, S)
REMAP = types.int64(S)
DUE = types.int64(X, types.int64, types.int64, types.int64, types.int64, types.int64, types.int64)
RELEASING = types.int64(S, X, X, types.int64, types.int64, types.int64, types.int64, types.float64)
PROPOSE = types.int64(S, types.int64, S, S, FLAGS, S)
NOTE = types.int64(S, types.int64, types.int64, types.int64)
SCORE = types.float64(X, X)
ASK = types.float64(types.int64, types.int64, types.int64, types.int64)  # what a callback in Python is asked

# Where a unit's bytes are, as prefetch policies see it; REMOTE is used below the device and never comes.
ABSENT, HOST, DEVICE, ARRIVING, REMOTE = 0, 1, 2, 3, 4

# What a plan tells the engine to do with a tensor when the host comes to an operator, before the operator's own demands.
EVICT, PREFETCH = range(2)
ACTION = np.dtype(
    [("at", np.int64),    # operator
     ("verb", np.int64),  # EVICT, PREFETCH
     ("unit", np.int64),  # tensor
     ("to", np.int64),    # EVICT: the tier, counted from 1; 0: the nearest with room
     ("line", np.int64)]  # of the file it was read from, 0 for a plan that was computed
)  # fmt: skip

# When a defrag policy is asked.
REFUSED, PLACED = 0, 1

# Facts a score may name, in the order of the facts vector.  Times are nanoseconds of *program time*: the clock of the same
# run without any stall, so that decisions do not depend on the machine's noise and the future is known exactly.
FACTS = {
    "size": "bytes of the unit",
    "last_use": "program time of its latest access, ns",
    "next_use": "program time of its next access, ns; infinite when there is none (reading it makes the policy an oracle)",
    "uses": "accesses so far",
    "reload_ns": "time to bring it back over the unloaded link, ns",
    "evict_ns": "time its eviction would take over the unloaded link, ns: 0 when a valid copy is below",
    "dirty": "1 when the copy here is the only valid one, else 0",
    "arrived": "program time at which it became resident, ns",
    "born": "program time at which its tensor was created, ns",
    "now": "program time of the decision, ns (a score that reads it is evaluated over all candidates at each eviction)",
    "stage": "what it is to the program: 0 a cache (inputs, workspaces), 1 an intermediate, 2 what lasts (parameters, state)",
    "depth": "of keys and values in a tier of a service: tokens of its prompt before it; else 0",
}
FUTURE_FACTS = ("next_use",)
TENSOR_FACTS = ("born", "stage", "depth")  # those that only tensors have
# Behind them in the vector, what only chunks of unified memory have.
CHUNK_FACTS = {
    "faults": "of unified memory: services of page faults that the chunk's block has had so far",
    "evictions": "of unified memory: how often the block has left this memory",
    "untouched": "of unified memory: pages of the chunk that came ahead of need and have not been used since",
    "array": "of unified memory: number of its allocation, -1 of a chunk that several small ones share",
    "process": "of unified memory: number of the process that has it, -1 of a chunk that small allocations share",
    "turns": "of unified memory: turns until the GPU is that process' again, 0: it is now, or it is of all at once",
}
# Facts of a region of a block, of which the prefetcher of a page fault asks whether it comes: from the faulted page to the
# whole block, each twice as large as the one before.
REGION_FACTS = {
    "pages": "pages of the region",
    "present": "those of them that are resident, or have been asked for with this fault",
    "block_pages": "pages of the block",
    "faulted": "pages of the block that have faulted now",
    "faults": "services of page faults that the block has had so far",
    "evicted": "pages of the region that this GPU once threw out",
    "evictions": "how often the block has left this GPU",
    "array": "number of the allocation",
    "array_ahead": "pages of the allocation that have come ahead of need so far",
    "array_wasted": "those of them that left without being used",
    "free": "share of the GPU's memory that is free",
    "accesses": "remote accesses that the GPU's access counter has counted in the block",
    "threshold": "the driver's own threshold, percent (uvm_perf_prefetch_threshold)",
    "now": "time of the fault, ns",
    "distance": "blocks from the one that has faulted to this one, in the direction of its allocation's faults: a policy that "
                "reads it is asked about whole blocks ahead as well, until one does not come",
    "stride": "blocks between the last two of the allocation that have faulted, below 0 backwards",
    "sure": "how often in a row that was the same",
    "block": "number of the block",
}
FUTURE_REGION_FACTS = ()
# Facts of a block of which a migration policy asks whether it belongs into the GPU's memory.
BLOCK_FACTS = {
    "here": "1 when the block's chunk is in the GPU's memory, else 0",
    "accesses": "remote accesses that the GPU's access counter has counted in the block since it was last asked",
    "uses": "accesses by kernels since the chunk came; 0 when it is not here",
    "idle": "ns since its latest use or service; 0 when it is not here",
    "faults": "services of page faults that the block has had so far",
    "evictions": "how often the block has left this GPU",
    "array": "number of the allocation",
    "free": "share of the GPU's memory that is free",
    "write": "1 when a store asks, else 0",
    "now": "ns",
    "block": "number of the block",
}
FUTURE_BLOCK_FACTS = ()

# The same of a pool policy, which scores a unit in a memory below; the order is that of its facts vector.
POOL_FACTS = {
    "size": "bytes that the unit takes there",
    "next_in": "ns of program time until the unit's next access; infinite when there is none (oracle)",
    "tier": "place of the memory's tier in the chain, 1 the nearest",
    "free": "bytes of the memory that are free now",
    "capacity": "bytes of the memory",
    "mine": "bytes of it that this program has",
    "taken": "units of this program that it has taken in so far",
    "evict_ns": "time of a copy there over unloaded links, ns",
    "reload_ns": "time of a copy from there over unloaded links, ns",
    "far": "1 when the memory is in another host, else 0",
    "lender": "1 when programs on other devices use it, too, else 0",
    "room": "bytes that its own device's program leaves free at least until the unit's next access (oracle)",
}
FUTURE_POOL_FACTS = ("next_in", "room")

# Header of a place policy's table: word -> meaning.
HELD = 0        # bytes held from the device now
ROUNDED = 1     # bytes of all blocks given to live units (their block sizes)
BLOCK = 2       # size in bytes of the block that the latest successful alloc gave
CAPACITY = 3    # bytes the device has for this allocator; the engine may change it between calls
CALLS = 4       # number of device calls that the latest verb made, listed from S[CALL_LIST]: (address, bytes) pairs,
CALL_LIST = 5   # bytes > 0 for memory taken from the device, < 0 for memory given back; S[CALL_LIST] is the index of the list
MAX_CALLS = 6   # room in the list, in pairs; calls beyond it are merged into the last pair's bytes
MOVES = 7       # so many of the calls, from the first on, cost nothing: memory with two addresses is booked where it is in use
HEADER = 8      # first word that is the policy's own
