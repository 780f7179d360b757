"""The moment that decides, as recorded: the request that failed, or the peak; what was live, held and free then."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gpusim.base.errors import PolicyError
from gpusim.policies.place.parts.pytorch import rules
from gpusim.policies.trials.allocator_replay import ENDLESS, AllocatorReplay
from gpusim.studies.fragmentation import start
from gpusim.studies.fragmentation.diagnosis import diagnose
from gpusim.trace.trace import ALLOC, FREE, I64, OOM, SEGMENT_ALLOC, SEGMENT_FREE, Trace

ROUND = 512
SMALL = 1 << 20          # requests up to this size come from the small pool
SMALL_SEGMENT = 2 << 20
SMALL_POOL, LARGE_POOL, EITHER = range(3)


@dataclass(frozen=True)
class FreeRanges:
    """Free ranges between live blocks, one entry each.

    stream   of the segment; pool: SMALL_POOL, LARGE_POOL, or EITHER where nothing tells
    whole    nothing lives in the hole's segment
    private  the segment belongs to a private pool (CUDA graphs, MemPool)
    """

    bytes: I64
    stream: I64
    pool: I64
    whole: npt.NDArray[np.bool_]
    private: npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Moment:
    """What was there just before an event.  All sizes in bytes, -1 where the recording does not tell.

    event      index in the trace; the state is that of the events before it
    failed     the event is a request that failed; else this is the peak of what was held, or of what was live
    size       requested then (0: nothing failed), rounded as the allocator rounds
    held       taken from the device; live: in blocks; requested: by the program, for these blocks
    left       what the device had left
    failures   requests that failed in the whole recording
    simulated  none of this was recorded: it is what a replay gives
    """

    event: int
    failed: bool
    size: int
    stream: int
    held: int
    live: int
    requested: int
    left: int
    holes: FreeRanges
    failures: int = 0
    simulated: bool = False

    @property
    def limit(self) -> int:
        """What the allocator could hold then, ENDLESS where unknown."""
        return self.held + self.left if self.held >= 0 and self.left >= 0 else ENDLESS


def block_sizes(trace: Trace) -> I64:
    """(T,) bytes of each tensor's block, by the recorded settings; what is not split off a free block is not in it."""
    try:
        parts = start.divisions(rules.commands(str(trace.meta.get("alloc_conf") or "")))
    except PolicyError:
        parts = {}
    if not parts:
        return -(-trace.size // ROUND) * ROUND
    sizes, which = np.unique(trace.size, return_inverse=True)
    return np.array([start.rounded(size, parts) if size else 0 for size in sizes.tolist()], np.int64)[which]


def has_segments(trace: Trace) -> bool:
    """Whether the recording tells what was held."""
    return bool(np.any(trace.kind == SEGMENT_ALLOC))


def held_bytes(trace: Trace) -> I64:
    """(E,) bytes taken from the device after each event."""
    sign = np.where(trace.kind == SEGMENT_ALLOC, 1, np.where(trace.kind == SEGMENT_FREE, -1, 0))
    return np.cumsum(sign * trace.bytes)


def live_bytes(trace: Trace, size: I64) -> I64:
    """(E,) bytes alive after each event, where each tensor has so many."""
    of = np.clip(trace.arg, 0, max(len(size) - 1, 0))
    sign = np.where(trace.kind == ALLOC, 1, np.where(trace.kind == FREE, -1, 0))
    return np.cumsum(sign * size[of]) if len(size) else np.zeros(trace.events, np.int64)


def moment(trace: Trace) -> Moment:
    """The last request that failed; without any, the event after which most was held, or most was live."""
    failed = np.flatnonzero(trace.kind == OOM)
    held, sizes = held_bytes(trace), block_sizes(trace)
    live = live_bytes(trace, sizes)
    if len(failed):
        event = int(failed[-1])
    else:
        known = has_segments(trace)
        event = int(np.lexsort((live, held))[-1] if known else live.argmax()) + 1
    before = event - 1
    oom = bool(len(failed))
    return Moment(
        event=event, failed=oom, size=int(-(-trace.bytes[event] // ROUND) * ROUND) if oom else 0,
        stream=int(trace.stream[event]) if oom else 0,
        held=int(held[before]) if has_segments(trace) and before >= 0 else -1,
        live=int(live[before]) if before >= 0 else 0,
        requested=int(live_bytes(trace, trace.size)[before]) if before >= 0 else 0,
        left=int(trace.addr[event]) if oom else -1,
        holes=holes(trace, event, sizes), failures=len(failed),
    )  # fmt: skip


def replayed(trace: Trace, done: AllocatorReplay) -> Moment:
    """The same of a replay, for a recording that does not tell what was held: its first refusal, else nearly its peak."""
    d = diagnose(done)
    heap, rows = d.heap, done.program.rows()
    maker = rows[heap.segments.start]
    small = np.where(maker["size"] <= SMALL, SMALL_POOL, LARGE_POOL)
    whole = (heap.live_in() == 0)[heap.of]
    failed = not done.fits
    gives_back = failed and done.policy is not None and done.policy.name == "pytorch"  # whole segments, before a request fails
    kept = ~(whole & gives_back)
    of, given = heap.of[kept], int(heap.hole_bytes[~kept].sum())
    no_pool = np.zeros(len(of), bool)
    found = FreeRanges(heap.hole_bytes[kept], maker["stream"][of].astype(np.int64), small[of], whole[kept], no_pool)
    return Moment(
        event=int(done.program.event[d.request]) if len(done.program.event) else 0, failed=failed,
        size=-(-d.size // ROUND) * ROUND if failed else 0, stream=d.stream, held=d.held - given, live=d.rounded,
        requested=d.requested, left=done.capacity - d.held + given if failed else -1, holes=found,
        failures=done.counts["refused"],
        simulated=True,
    )  # fmt: skip


def alive(trace: Trace, event: int) -> I64:
    """Ids of the tensors that live just before an event."""
    born = trace.arg[:event][trace.kind[:event] == ALLOC]
    dead = trace.arg[:event][trace.kind[:event] == FREE]
    lives = np.zeros(trace.tensors, bool)
    lives[born] = True
    lives[dead] = False
    return np.flatnonzero(lives)


def addresses(trace: Trace) -> I64:
    """(T,) the address of each tensor, -1 where unknown."""
    found = np.full(trace.tensors, -1, np.int64)
    made = trace.kind == ALLOC
    found[trace.arg[made]] = trace.addr[made]
    return found


def holes(trace: Trace, event: int, sizes: I64) -> FreeRanges:
    """The free ranges just before an event; none where the recording has no addresses."""
    begin, end, stream = _mapped(trace, event)
    tensors = alive(trace, event)
    tensors = tensors[trace.size[tensors] > 0]
    addr, size = addresses(trace)[tensors], sizes[tensors]
    if not len(begin) or np.any(addr < 0):
        none = np.zeros(0, np.int64)
        return FreeRanges(none, none, none, none.astype(bool), none.astype(bool))
    order = np.argsort(addr, kind="stable")
    addr, size, small = addr[order], size[order], trace.size[tensors][order] <= SMALL
    joined = _join(begin, end, stream, addr, size)
    begin, end, stream = begin[joined], np.maximum.reduceat(end, joined), stream[joined]
    home = np.searchsorted(begin, addr, "right") - 1
    inside = home >= 0
    addr, size, small, home = addr[inside], size[inside], small[inside], home[inside]
    left, right = np.concatenate([begin, addr + size]), np.concatenate([addr, end])
    of = np.concatenate([np.arange(len(begin)), home])
    order = np.argsort(left, kind="stable")
    left, of, right = left[order], of[order], np.sort(right)
    count, few = np.bincount(home, minlength=len(begin)), np.bincount(home, small, minlength=len(begin))
    pool = np.where(few * 2 > count, SMALL_POOL, LARGE_POOL)
    pool[count == 0] = np.where((end - begin)[count == 0] == SMALL_SEGMENT, EITHER, LARGE_POOL)
    private = _private(trace, begin)
    found = right > left
    of = of[found]
    return FreeRanges((right - left)[found], stream[of], pool[of], (count == 0)[of], private[of])


def _mapped(trace: Trace, event: int) -> tuple[I64, I64, I64]:
    """(begin, end, stream) of what is held just before an event, by address, one entry per recorded segment or rest of one."""
    rows = np.flatnonzero((trace.kind[:event] == SEGMENT_ALLOC) | (trace.kind[:event] == SEGMENT_FREE))
    edges = np.unique(np.concatenate([trace.addr[rows], trace.addr[rows] + trace.bytes[rows]]))
    owner = np.full(max(len(edges) - 1, 0), -1)  # of the range from each edge to the next: the event that took it
    first, last = np.searchsorted(edges, trace.addr[rows]), np.searchsorted(edges, trace.addr[rows] + trace.bytes[rows])
    taken = trace.kind[rows] == SEGMENT_ALLOC
    for row, lo, hi, takes in zip(rows.tolist(), first.tolist(), last.tolist(), taken.tolist(), strict=True):
        owner[lo:hi] = row if takes else -1
    held = np.flatnonzero(owner >= 0)
    if not len(held):
        return (np.zeros(0, np.int64),) * 3
    starts = held[np.concatenate([[True], (np.diff(held) > 1) | (np.diff(owner[held]) != 0)])]
    ends = held[np.concatenate([(np.diff(held) > 1) | (np.diff(owner[held]) != 0), [True]])] + 1
    return edges[starts], edges[ends], trace.stream[owner[starts]].astype(np.int64)


def _join(begin: I64, end: I64, stream: I64, addr: I64, size: I64) -> I64:
    """Where each run of segments starts: those that touch are one if a block crosses, or if their pages are mapped ones."""
    if len(begin) < 2:
        return np.arange(len(begin))
    before = np.searchsorted(addr, begin[1:], "left") - 1
    crossed = (before >= 0) & ((addr + size)[before] > begin[1:])
    return np.flatnonzero(np.concatenate([[True], ~((end[:-1] == begin[1:]) & (stream[:-1] == stream[1:]) & crossed)]))


def _private(trace: Trace, begin: I64) -> npt.NDArray[np.bool_]:
    """Which segments are of a private pool, as far as the recording tells."""
    found = np.zeros(len(begin), bool)
    pools = (trace.meta.get("heap") or {}).get("pools") or []  # [number of the segment event, private pool]
    if pools:
        events = np.flatnonzero((trace.kind == SEGMENT_ALLOC) | (trace.kind == SEGMENT_FREE))
        for event in events[[number for number, _ in pools]].tolist():
            found |= (begin >= trace.addr[event]) & (begin < trace.addr[event] + trace.bytes[event])
    return found
