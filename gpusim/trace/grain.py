"""The grain of migration: a program whose tensors are cut into chunks, each of which comes and goes by itself.

    parse("2 MiB")          bytes; TENSOR (0) for "tensor": a whole tensor moves at once
    chunked(work, bytes)    the workload in which every chunk is a tensor of its own, and which chunks each tensor became

An operator accesses all chunks of its tensors.  Chunks of a tensor have ids that follow each other, are allocated and freed in
that order, and inherit all else; the last one of each tensor may be smaller.  So part of a tensor may be resident, and
everything that holds for tensors holds for chunks, pages (4 KiB) and blocks (2 MiB) alike.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from gpusim.base.errors import GpusimError, UnitError
from gpusim.base.units import BYTES, parse_bytes, show_bytes
from gpusim.base.units import write as write_quantity
from gpusim.trace.trace import ALLOC, FREE, I64, Trace
from gpusim.trace.workload import ROUND, Workload

TENSOR = 0
MOST = 5 * 10**7  # chunks, and accesses to them: some 2 GB of tables
_OF_TENSORS = ("free_requested", "start")  # meta that speaks of rows as they were recorded


@dataclass(frozen=True)
class Chunks:
    """A program at a grain."""

    work: Workload  # its tensors are the chunks
    first: I64      # (T + 1,): tensor t has become chunks first[t] to first[t + 1] - 1
    size: int       # bytes, at most

    @property
    def text(self) -> str:
        return write(self.size)

    def tensor_of(self, chunk: int) -> int:
        """The tensor that a chunk is a part of; -1 for none."""
        return int(np.searchsorted(self.first, chunk, "right")) - 1

    def of(self, tensors: I64) -> tuple[I64, I64]:
        """All chunks of these tensors, in order: the index into `tensors` that each comes from, and its id."""
        return _spread(self.first, np.asarray(tensors, np.int64))


def parse(text: object) -> int:
    """Bytes of a chunk, TENSOR for "tensor".  Raises UnitError."""
    if isinstance(text, str) and text.strip() == "tensor":
        return TENSOR
    try:
        size = parse_bytes(text)
    except UnitError as error:
        raise UnitError(error.message, hint=f"{error.hint}; or tensor" if error.hint else "write a size, or tensor") from None
    if size < ROUND or size % ROUND:
        raise UnitError(f"'{text}' is no multiple of {ROUND} B, to which memory is given out", hint="write 4 KiB or 2 MiB")
    return size


def write(size: int) -> str:
    """What `parse` reads."""
    return write_quantity(size, BYTES) if size else "tensor"


def chunked(work: Workload, size: int) -> Chunks:
    """The program in chunks of `size` bytes, found once for a workload; raises GpusimError where that are too many."""
    known: tuple[int, Chunks] | None = work.__dict__.get("_chunks")
    if known is None or known[0] != size:
        known = size, _chunked(work, size)
        work.__dict__["_chunks"] = known
    return known[1]


def _chunked(work: Workload, size: int) -> Chunks:
    t = work.trace
    counts = np.maximum(1, -(-t.size // size))
    first = np.concatenate([[0], np.cumsum(counts)])
    many = max(int(first[-1]), int(counts[work.acc_unit].sum()))
    if many > MOST:
        raise GpusimError(
            f"{t.name} in chunks of {show_bytes(size)} has {many:,} accesses, more than {MOST:,}", hint="take a larger grain"
        )
    at, unit = _spread(first, work.acc_unit)
    start = np.concatenate([[0], np.cumsum(counts[work.acc_unit])])[work.acc_start]
    return Chunks(
        replace(
            work, trace=cut(t, size), acc_start=start, acc_unit=unit, acc_write=work.acc_write[at],
            acc_next=work.acc_next[at], first=np.repeat(work.first, counts), has_data=np.repeat(work.has_data, counts),
        ),
        first,
        size,
    )  # fmt: skip


def cut(t: Trace, size: int) -> Trace:
    """The trace of the program in chunks of `size` bytes."""
    counts = np.maximum(1, -(-t.size // size))
    first = np.concatenate([[0], np.cumsum(counts)])
    sizes = np.full(first[-1], size)
    sizes[first[1:] - 1] = t.size - size * (counts - 1)
    held = (t.kind == ALLOC) | (t.kind == FREE)
    times = np.ones(t.events, np.int64)
    times[held] = counts[t.arg[held]]
    event, part = np.repeat(np.arange(t.events), times), _within(times)
    held = held[event]
    where = {"read": t.read_id, "write": t.write_id}
    spread = {side: _spread(first, ids)[1] for side, ids in where.items()}
    starts = {side: np.concatenate([[0], np.cumsum(counts[ids])])[getattr(t, f"{side}_start")] for side, ids in where.items()}
    arg = np.where(held, first[np.where(held, t.arg[event], 0)] + part, t.arg[event])
    nbytes, allocated = t.bytes[event], t.kind[event] == ALLOC
    nbytes[allocated] = sizes[arg[allocated]]
    made = {
        "size": sizes, "category": np.repeat(t.category, counts),
        "kind": t.kind[event], "arg": arg, "stream": t.stream[event], "time": t.time[event],
        "addr": np.where(held & (t.addr[event] >= 0), t.addr[event] + part * size, t.addr[event]),
        "bytes": nbytes,
        "read_start": starts["read"], "read_id": spread["read"], "write_start": starts["write"], "write_id": spread["write"],
    }  # fmt: skip
    for column in made.values():
        column.flags.writeable = False
    meta = {key: value for key, value in t.meta.items() if key not in _OF_TENSORS}
    return replace(t, **made, meta={**meta, "grain": write(size)})


def _spread(first: I64, ids: I64) -> tuple[I64, I64]:
    """For tensors in a row: the index that each of their chunks comes from, and the chunk."""
    counts = first[ids + 1] - first[ids]
    at = np.repeat(np.arange(len(ids)), counts)
    return at, first[ids][at] + _within(counts)


def _within(counts: I64) -> I64:
    """0, 1, ... counts[0] - 1, 0, 1, ... counts[1] - 1, ..."""
    return np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
