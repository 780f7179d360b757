"""What the walk over the log can say, and what it adds up."""

from __future__ import annotations

DEVICE = 0  # memory; the others are the tiers below it
T_IN, T_OUT, T_PEAK, T_NOW = range(4)  # columns of the tiers' bytes

# What the walk adds up; `now` columns are levels, `peak` their maxima, `total` what was ever taken.
LEDGER = (
    "allocated_now", "allocated_peak", "allocated_total", "requested_now", "requested_peak", "requested_total",
    "requested_at_peak", "reserved_now", "reserved_peak",
    "reserves", "releases", "drops", "copies_in", "copies_out", "bytes_in", "bytes_out", "kernels", "ooms",
    "moved_bytes", "created_bytes", "arrived_bytes", "freed_bytes", "dropped_bytes", "departed_bytes", "accesses", "blocks",
)  # fmt: skip
(
    A_NOW, A_PEAK, A_TOTAL, Q_NOW, Q_PEAK, Q_TOTAL, Q_AT_PEAK, R_NOW, R_PEAK,
    RESERVES, RELEASES, DROPS, INS, OUTS, BYTES_IN, BYTES_OUT, KERNELS, OOMS,
    MOVED, CREATED, ARRIVED, FREED, DROPPED, DEPARTED, ACCESSES, BLOCKS,
) = range(len(LEDGER))  # fmt: skip

# Violations of the walk: what is wrong and what is expected; x and y are numbers of the record.
SAYS: tuple[tuple[str, str], ...] = (
    ("tensor {x} begins while it lives", "one beginning"),
    ("a tensor of {x} bytes", "{y} bytes, as in the trace"),
    ("tensor {x} is touched before it begins or after it ends", "a living tensor"),
    ("tensor {x} ends with a block still in memory {y}", "its blocks given back first"),
    ("tensor {x} gets a second block in memory {y}", "one block"),
    ("a block of {x} bytes for a tensor of {y} there", "at least what it takes, and no block for an empty tensor"),
    ("the block at address {x} overlaps the block of tensor {y}", "no overlap"),
    ("the block at address {x} of {y} bytes is not inside reserved memory", "memory taken from the device first"),
    ("memory {x} holds {y} bytes, more than its capacity", "at most its capacity"),
    ("tensor {x} leaves memory {y}, where it has no such block", "the address and size of its block"),
    ("tensor {x} left device memory without copy, drop or end (record {y})", "a reason to leave"),
    ("tensor {x} was dropped from memory {y} and its block is still there", "its block given back"),
    ("activity {x} copies tensor {y} from where it has no data", "a source that holds a copy"),
    ("a copy of tensor {x} from or to memory {y}, where it has no block", "a block at both ends"),
    ("a copy moves {x} bytes", "{y} bytes, the tensor's size or what a codec on the GPU makes of it"),
    ("activity {x} uses tensor {y}, which has no block where it is used", "a resident tensor"),
    ("activity {x} reads tensor {y}, whose latest version is elsewhere", "a valid copy where it is used"),
    ("activity {x} reads tensor {y}, whose latest version was lost", "a copy before the last one is given up"),
    ("activity {x} starts before {y} ns, when earlier users of its bytes have ended", "a later start"),
    ("activity {x} starts though tensor {y} is still being moved or used there, and never done", "a later start"),
    ("memory at address {x} is reserved again", "memory that is not held"),
    ("memory at address {x} is given back and was not reserved", "reserved memory"),
    ("memory at address {x} is given back under the block of tensor {y}", "no block inside"),
    ("out of memory with a free block of {x} bytes", "at most the {y} bytes that hold no block"),
)  # fmt: skip
(
    TWICE_BORN, WRONG_SIZE, NOT_LIVE, ENDS_PLACED, PLACED_TWICE, TOO_SMALL, OVERLAP, UNRESERVED, OVER_CAPACITY,
    NO_SUCH_BLOCK, NO_REASON, STILL_THERE, NO_SOURCE, NO_ENDS, WRONG_MOVE, NOT_RESIDENT, STALE, LOST, TOO_EARLY,
    NEVER_DONE, RESERVED_TWICE, NOT_RESERVED, UNDER_BLOCK, NOT_FULL,
) = range(len(SAYS))  # fmt: skip
