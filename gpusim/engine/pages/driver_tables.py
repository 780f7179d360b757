"""The tables of a unified memory: blocks of 2 MiB with masks of their pages, root chunks of each GPU, counters.

    processor 0 is the CPU, 1.. are GPUs.  A mask is a row of `bits`: `row(M, plane, block)`.
    block ──▶ chunk[processor, block] ──▶ root chunk, in one list of its GPU (free, unused, discarded, used)
    page  =   index from the start of its block, not of the window of 2 MiB: different for the first block of an unaligned array
"""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import numpy as np

from gpusim.base.compiled import by_pointer, kernel
from gpusim.base.tables import f8, i4, i8, record, signature
from gpusim.engine.pages.bits import WORDS
from gpusim.engine.state import LEGS
from gpusim.results.page_log import LOG

u8, u1 = np.uint64, np.uint8
NONE = -1
SPLIT = -2  # the owner of a root chunk that several partial blocks share
CPU = 0

# Planes of masks.  Three for each processor ...
RESIDENT, MAPPED, WRITABLE = range(3)
# ... and behind those of all processors (`M.state[0].shared`): pages that came to a GPU by prefetch and have not been touched
# since, that were written since they came, that a GPU once threw out, that thrash, that the CPU took from a GPU,
# whose contents the program has discarded, that a prefetcher wants (`ahead`).
PREFETCHED, DIRTY, EVICTED, THRASHING, TAKEN, LOST, WANTED, SHARED = range(8)
# Rows of scratch behind all planes.
FAULTED, WRITES, ASKED, GUESS, LEAVES, MOVING, COPIED, FROM, HERE, GOING, REST, STORES, FRESH = range(13)
SCRATCH = 13

# Lists of root chunks.
FREE, UNUSED, DISCARDED, USED, HELD, LISTS = range(6)

# What gives memory to a block: the driver; the host's kernel, in page tables that GPUs share (ATS) or the driver mirrors (HMM).
# DEVICE: cudaMalloc's, outside of all that.
MANAGED, ATS, HMM, DEVICE = range(4)

# Why pages move.
DEMAND, PREFETCH, EVICTION, EXPLICIT, COUNTER, CAUSES = range(6)


BLOCK = record(
    [("pages", i8), ("offset", i8),          # how long; where it begins in its window of 2 MiB, in pages
     ("kind", i8),
     ("process", i8),
     ("range", i8), ("partial", i8),         # its allocation; its row of `frames`, NONE if it takes whole root chunks
     ("preferred", i8), ("accessed_by", i8), # a processor or NONE; processors, as bits
     ("read_mostly", i8), ("lost", i8),       # has it pages whose contents are discarded?
     ("last_destination", i8), ("fault_migrations", i8),
     ("served", i8), ("served_by", i8),      # the replay that its last fault service came before, and of which GPU
     ("host_chunk", i8),                     # pages to a piece of host memory; 0 before there is any
     ("seen", i8),                           # GPUs, as bits, that have had a page of it
     ("last_event", f8), ("last_processor", i8), ("tracked", i8), ("resets", i8), ("rivals", i8),  # thrashing
     ("uses", i8), ("run", i8),  # by kernels so far; the run of `foresight` that this is in
     ("evicted_from", i8),  # GPUs, as bits, that may map what left them, when the work queue comes to it (remapping.py)
     ("services", i8), ("departures", i8),  # of faults, so far; how often its chunk was evicted
     ("queued", i8), ("expected", i8)]  # in the queue of `ahead`: for which GPU; the prediction that has it
)  # fmt: skip
ROOT = record(
    [("owner", i8), ("list", i8), ("older", i8), ("newer", i8), ("locked", i8),
     ("held", i8),                               # frames of one that is shared
     ("unit", i8),                               # its number for the eviction policy (chunk_policy), NONE: it does not know it
     ("uses", i8), ("used", f8), ("arrived", f8)]  # by kernels since it came; ns
)  # fmt: skip
PIECE = record([("held", i8), ("older", i8), ("newer", i8)])
GPU = record(
    [("roots", i8), ("first_root", i8),
     ("oldest", (i8, LISTS)), ("newest", (i8, LISTS)), ("length", (i8, LISTS)),
     ("room", (i8, 2)),                # the first shared root chunk that may have a free page, a free big page
     ("system_pages", i8),             # of system memory, in root chunks of the list HELD
     # ns, and ns per byte
     ("pass_ns", f8), ("batch", f8), ("fault", f8), ("block", f8), ("first_touch", f8), ("setup", f8), ("page", f8),
     ("page_out", f8), ("page_kept", f8), ("chunk", f8), ("run", f8), ("replay", f8), ("first_fault", f8),
     ("fault_interval", f8), ("report_interval", f8),
     ("in_start", f8), ("in_byte", f8), ("out_start", f8), ("out_byte", f8), ("zero_byte", f8),
     ("remote_byte", f8), ("remote_request", f8), ("remote_store", f8), ("store_byte", f8),
     ("cpu_fault", f8), ("cpu_page", f8), ("cpu_byte", f8),
     ("engaged", f8),  # how long the copy engine has worked for faults
     ("copied", f8), ("queued", f8), ("setting_up", f8),  # when all copies are over; of the service that runs
     ("replays_at", f8),  # the batch that it serves ends then
     ("moves", (f8, LEGS)), ("takes", (f8, LEGS)),  # bytes that no transfer has yet, and what they take, ns
     ("first_copy", f8), ("begun", i8),  # of a batch: when its copies begin, and whether they have
     ("noted", i8),  # records of the log before the service that runs
     ("replays_seen", i8),  # the replay since which rows of `locks` are kept
     ("pieces", i8), ("oldest_piece", i8), ("newest_piece", i8),
     ("peer_byte", f8),  # to and from other GPUs; 0: their memories are not accessible
     ("coherent", i8)]   # is its memory directly and fast accessible to the CPU (NVLink2 to POWER9, C2C)?
)  # fmt: skip
COUNT = record(
    [("touches", i8), ("touched_bytes", i8), ("remote_bytes", i8),
     ("passes", i8), ("batches", i8), ("fetched", i8), ("duplicates", i8), ("satisfied", i8), ("dropped", i8), ("replays", i8),
     ("heads", i8),  # reports of the page that is first in its batch
     ("throttled", i8), ("pinned", i8), ("notices", i8), ("faults", i8), ("block_services", i8), ("full_batches", i8),
     ("evictions", i8), ("first_touches", i8), ("zeroed", i8),
     # pages that came to this processor, by cause, and the records of the copies that brought them; those that left by eviction
     ("came", (i8, CAUSES)), ("copies", (i8, CAUSES)), ("left", i8), ("left_copies", i8), ("left_clean", i8),
     ("dropped_clean", i8), ("dropped_lost", i8),  # evicted without a copy: unwritten (an alternative's rule), discarded
     ("wasted", i8),     # prefetched, and left untouched
     ("refetched", i8),  # came again after an eviction
     # ns; lagged: by which remote accesses outlast the work that goes on meanwhile; waited: throttled
     ("copy_wait", f8),  # of the time of copies, what no work hides
     ("moving", f8), ("moving_copies", f8),  # a kernel waits for prefetches of the program; for their copies
     ("busy", f8), ("service", f8), ("copy_in", f8), ("copy_out", f8), ("remote", f8), ("lagged", f8), ("waited", f8)]
)  # fmt: skip
STATE = record(
    [("now", f8), ("blocks", i8), ("processors", i8), ("shared", i8), ("scratch", i8),
     ("page_bytes", i8), ("page_shift", i8), ("per_block", i8), ("block_shift", i8), ("big", i8),
     ("prefetch_enable", i8), ("threshold", i8), ("min_faults", i8),
     ("unified", i8), ("ats_mode", i8), ("hmm_off", i8), ("counters", i8), ("counter_threshold", i8), ("counter_batch", i8),
     ("map_evicted", i8), ("deferred", i8), ("notices", i8), ("notices_head", i8), ("notices_fetched", i8),
     ("notice_due", f8), ("driver_free", f8),
     ("batch_count", i8), ("replay_policy", i8), ("put_ratio", i8), ("max_batches", i8), ("max_throttled", i8),
     ("force_sysmem", i8),
     ("host_chunks", i8),  # sizes of host memory that are tried, as a mask
     ("oversubscription", i8),
     ("thrash_enable", i8), ("thrash_threshold", i8), ("pin_threshold", i8), ("lapse", f8), ("nap", f8), ("epoch", f8),
     ("pin", f8), ("max_resets", i8), ("tracked", i8), ("wake", f8),
     ("lapse_votes", i8), ("votes", i8),
     ("evict", i8), ("prefetcher", i8),
     ("own", i8), ("hears", i8), ("sample", i8), ("incoming", i8),  # of the eviction policy over chunks (chunk_policy)
     ("drops_clean", i8), ("follows", i8), ("pieces", i8), ("reserve", i8),  # of the eviction policy
     ("learns", i8), ("announces", i8),  # of the prefetcher
     ("regions", i8), ("migrates", i8),  # has a user's policy the choice of regions, of blocks?
     ("reaches", i8),    # is it asked about blocks ahead of the one that has faulted?
     ("asks", i8),       # does a prefetcher in Python hear of launches and faults?
     ("watches", i8),  # does a policy need to know of every use?
     ("queue_head", i8), ("queue_length", i8),
     ("kernel", i8), ("kernels", (i8, 3)), ("last_faulted", i8),  # what runs, the last three, the block that faulted last
     ("serial", i8), ("expected", i8), ("ahead_kernels", (i8, 3)), ("ahead_block", i8), ("ahead_count", i8),  # a prediction
     ("observes", i8), ("foresees", i8), ("position", i8), ("runs", i8), ("window", i8), ("launch", i8),  # foresight
     ("batches", i8), ("logged", i8), ("failed", i8),
     ("pause", f8),  # ns: warps go no further at once, as the CPU may take pages from them
     ("column_ns", f8), ("raster_from", f8), ("slice_shift", i8)]  # of the picture in raster.py
)  # fmt: skip
# Accesses of one GPU to pages of a block that are elsewhere.
# regions: of 64 KiB, as bits; asked: how often a migration policy said no.
COUNTER_REGISTER = record([("accesses", i8), ("regions", i8), ("noticed", i8), ("asked", i8)])
STREAM = record([("last", i8), ("stride", i8), ("sure", i8)])  # of an allocation
SUCCESSORS = 4
LINK = record([("kernel", i8), ("block", i8), ("turn", i8), ("next", (i8, SUCCESSORS))])
CONTEXT = record([("key", i8), ("next", i8)])
# A page under the eye of the thrashing detector.
PAGE = record([("last", f8), ("until", f8), ("events", i4), ("throttles", i4), ("home", i4), ("chosen", i4), ("state", i4)])
# What one allocation saw, on all processors.  Counts are of pages where nothing else is said.
RANGE = record(
    [("gpu_reads", i8), ("gpu_writes", i8), ("cpu_reads", i8), ("cpu_writes", i8),  # faulted pages, by processor and access,
     ("faults_new", i8), ("faults_again", i8), ("faults_permission", i8),  # nowhere yet; evicted before; readable already
     ("came", (i8, CAUSES)), ("went", (i8, CAUSES)),  # to GPUs and to the CPU from elsewhere, by cause
     ("left_clean", i8), ("zeroed", i8), ("wasted", i8), ("refetched", i8),
     ("ping_pong", i8),      # came to a GPU again after the CPU had taken it
     ("remote_bytes", i8), ("throttled", i8), ("pinned", i8), ("notices", i8),
     ("service", f8), ("cpu_service", f8), ("copy_in", f8), ("copy_out", f8)]  # ns; of faults of GPUs, of the CPU's
)  # fmt: skip

# Uses of one block in one launch that follow closely: see `foresight`.
RUN = record([("block", i8), ("launch", i8), ("first", i8), ("last", i8), ("until", i8), ("pages", (u8, WORDS))])

# Why a compiled loop came back.
DONE, NO_MEMORY = range(2)


@by_pointer
class DriverState(NamedTuple):
    """All that changes in a run, but for the warps; P processors, B blocks."""

    bits: Annotated[Any, u8, "rows", "words"]
    blocks: Annotated[Any, BLOCK, "B"]
    chunk: Annotated[Any, i8, "P", "B"]       # root chunk of a whole block, NONE
    roots: Annotated[Any, ROOT, "roots of all GPUs"]
    unit_words: Annotated[Any, i8, "P", "units"]    # the eviction policy's tables for each GPU ...
    unit_numbers: Annotated[Any, f8, "P", "units"]
    locks: Annotated[Any, u1, "P", "units"]   # those that it may not choose
    verbs: Annotated[Any, i8, "verbs", 2]     # where its verbs begin
    facts: Annotated[Any, f8, "facts"]        # what its score reads, of one candidate
    params: Annotated[Any, f8, "parameters"]  # of the policy
    page_verbs: Annotated[Any, i8, 3, 2]      # the same of policies of pages (page_policy)
    page_params: Annotated[Any, f8, 2, "parameters"]
    region_facts: Annotated[Any, f8, "facts of a region"]
    block_facts: Annotated[Any, f8, "facts of a block"]
    turns: Annotated[Any, i8, "processes"]    # until the GPU is each one's again
    pieces: Annotated[Any, PIECE, "pieces"]   # 32 B GPUs for those that evict big pages
    queue: Annotated[Any, i8, "B"]            # ring of blocks that prefetchers want
    streams: Annotated[Any, STREAM, "arrays"]
    links: Annotated[Any, LINK, "links"]      # learned: what follows a block in a kernel
    contexts: Annotated[Any, CONTEXT, "contexts"]  # learned: what follows three kernels
    future: Annotated[Any, RUN, "runs"]       # for oracles: see foresight
    gpus: Annotated[Any, GPU, "P"]
    frames: Annotated[Any, i8, "GPUs", "partial blocks", "pages"]  # page frame (512 to a root chunk) of each page, NONE
    holder: Annotated[Any, i4, "frames"]      # of all GPUs: 1 + the partial block that has a page there
    counts: Annotated[Any, COUNT, "P"]
    state: Annotated[Any, STATE, 1]
    watched: Annotated[Any, PAGE, "pages"]
    counters: Annotated[Any, COUNTER_REGISTER, "P", "B"]
    deferred: Annotated[Any, i8, "B"]         # evicted blocks that the work queue has to map remotely
    notices: Annotated[Any, i8, "B"]          # ring of blocks whose counters have told the driver, the oldest first
    ranges: Annotated[Any, RANGE, "arrays"]
    sizes: Annotated[Any, i8, "P", "batch_count + 1"]  # batches by the faults that were fetched
    log: Annotated[Any, LOG, "log"]
    raster: Annotated[Any, i8, "layers", "rows", "columns"]  # pages by address and time


DRIVER = signature(DriverState)


@kernel
def row(M: DriverState, processor: int, plane: int, b: int) -> int:
    return int((3 * processor + plane) * M.state[0].blocks + b)


@kernel
def shared(M: DriverState, plane: int, b: int) -> int:
    return int(M.state[0].shared + plane * M.state[0].blocks + b)


@kernel
def scratch(M: DriverState, which: int) -> int:
    return int(M.state[0].scratch + which)
