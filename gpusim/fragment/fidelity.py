"""How exact is the model of PyTorch's allocator on this recording?

The recording's heap is rebuilt as it was before the first event (start.py); then all its requests go through the model,
the device answering with the recorded addresses of segments.  Counted are the allocations that get the recorded address,
and the segment events (taken, given back) that the model predicts: at which request, which one, how large.

What was given back counts as `empty_cache` at that moment, of which the model says what goes: a recording does not tell
that call from a request for which the device had no room.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from gpusim.core import log as logs
from gpusim.core.requests import R_ALLOC, REQUEST
from gpusim.core.tables import table
from gpusim.errors import PolicyError
from gpusim.fragment import start
from gpusim.fragment.replay import ENDLESS, replay
from gpusim.fragment.requests import Requests
from gpusim.fragment.snapshot import Recording, SegmentEvent, read
from gpusim.policies import registry
from gpusim.policies.pytorch import rules
from gpusim.trace.trace import I64, Trace

RELEASES = ("2.11", "2.13")  # of equal free blocks the one at the lowest address, or of the oldest segment
MOST_ATTEMPTS = 64


@dataclass(frozen=True)
class Miss:
    """Something that the model did not do as recorded.

    event     index of the trace's event: the allocation, or the one that a segment was taken or given back for
    what      "alloc", "segment_alloc" or "segment_free"
    recorded  address, -1: the recording has no such segment event
    model     address, -1: the model has none
    """

    event: int
    what: str
    bytes: int
    recorded: int
    model: int
    why: str


@dataclass(frozen=True)
class Exactness:
    """What share of a recording the model repeats.

    release  the release of PyTorch whose order of free blocks fits best; the first of `alike`
    alike    all releases that fit as well
    settled  what the recording leaves open of its start and shows only later: a block's size, which segment is older
    """

    release: str
    allocs: int
    placed: int
    segment_events: int
    predicted: int
    misses: list[Miss]
    settled: int = 0
    alike: tuple[str, ...] = ()

    @property
    def invented(self) -> int:
        """Segment events of the model that the recording does not have."""
        return sum(miss.what != "alloc" and miss.recorded < 0 for miss in self.misses)

    @property
    def text(self) -> str:
        """One line for a report."""
        if self.segment_events:
            segments = f" and predicts {self.predicted:,} of {self.segment_events:,} segment events"
            more = f", and makes {self.invented:,} that were not recorded" if self.invented else ""
        else:
            segments = "; no segment is taken or given back meanwhile"
            more = f", while the model does so {self.invented:,} times" if self.invented else ", nor by the model"
        order = f"{' or '.join(self.alike)} order"
        if self.settled:
            order += f"; sizes and ages at the start that only later events tell: {self.settled:,}"
        apart = f". They part at event {self.misses[0].event:,}: {self.misses[0].why}" if self.misses else ""
        return (
            f"The model puts {self.placed:,} of {self.allocs:,} allocations at their recorded addresses"
            f"{segments}{more} (PyTorch {order}){apart}."
        )


def in_words(trace: Trace) -> str:
    """How exact the model is on this recording, or why that cannot be said; "" for what is no snapshot with segments."""
    exact = how_exact(trace)
    if exact is not None:
        return exact.text
    recording = read(trace)
    if recording is None or not any(_expandable(recording, release) for release in RELEASES):
        return ""
    return (
        "How exactly the model repeats this recording cannot be said: with expandable segments a snapshot holds the pages that "
        "are mapped, not the ranges of addresses that they belong to, nor in which order these were made."
    )


def how_exact(trace: Trace) -> Exactness | None:
    """None where there is nothing to repeat: no snapshot with segments, or one of expandable segments."""
    recording = read(trace)
    if recording is None or not np.any(recording.rows["kind"] == R_ALLOC):
        return None
    found = [exactness for release in RELEASES if (exactness := _under(recording, release))]
    if not found:
        return None
    best = max(found, key=_rank)
    return replace(best, alike=tuple(f.release for f in found if _rank(f) == _rank(best)))


def _rank(found: Exactness) -> tuple[int, int, int]:
    return found.placed, found.predicted - found.invented, -found.settled


def _under(recording: Recording, release: str) -> Exactness | None:
    """Replay under this release, again whenever a misplaced allocation tells more of the start."""
    try:
        conf = rules.commands(recording.conf, release)
    except PolicyError:
        return None  # this release has not these settings
    if _expandable(recording, release):
        return None
    known = _Known({}, recording.segments)
    best = _attempt(recording, release, conf, known)
    for settled in range(1, MOST_ATTEMPTS):
        for learned in (_larger(recording, conf, known, best), _older(recording, release, known, best)):
            tried = _attempt(recording, release, conf, learned) if learned else best
            if learned and _misplaced(tried) > _misplaced(best):  # it explains that allocation
                known, best = learned, replace(tried, settled=settled)
                break
        else:
            break
    return best


def _expandable(recording: Recording, release: str) -> bool:
    """Whether the program ran with expandable segments."""
    try:
        return (rules.SET_EXPANDABLE, 1, 0) in rules.commands(recording.conf, release)
    except PolicyError:
        return False


@dataclass(frozen=True)
class _Known:
    """The start as far as it is known: sizes of units' blocks, where a gap leaves them open; segments, oldest first."""

    sizes: dict[int, int]
    segments: list[start.Segment]


def _misplaced(found: Exactness) -> float:
    """The event of the first allocation that went elsewhere, endless when all are as recorded."""
    return next((miss.event for miss in found.misses if miss.what == "alloc"), math.inf)


def _attempt(recording: Recording, release: str, conf: Sequence[rules.Command], known: _Known) -> Exactness:
    units = recording.trace.tensors
    before, spare = start.requests(known.segments, conf, known.sizes, units)
    rows = table(len(before) + len(recording.rows), REQUEST)
    rows[: len(before)], rows[len(before) :] = before, recording.rows
    live = len(before) + int((recording.rows["kind"] == R_ALLOC).sum())
    program = Requests(recording.trace.name, lambda: iter([rows]), len(rows), units + spare, live)
    policy = registry.get("place", {"name": "pytorch", "params": {"release": release, "device": "recorded"}})
    later = [(addr, size) for _, taken, addr, size in recording.segment_events if taken]
    segments = [(segment.addr, segment.size) for segment in known.segments] + later
    room = min(4 * sum(size for _, size in segments) + (1 << 30), ENDLESS)  # the real device had enough
    log = replay(program, policy, room, log=True, recorded=segments).log
    log = log[log["t"] >= len(before)]
    log["t"] -= len(before)
    placed = log[log["kind"] == logs.PLACE]
    addr = np.full(len(recording.rows), -1, np.int64)
    addr[placed["t"]] = placed["addr"]
    changes = log[(log["kind"] == logs.RESERVE) | (log["kind"] == logs.RELEASE)]
    taken = changes["kind"] == logs.RESERVE
    listed = zip(*(c.tolist() for c in (changes["t"], taken, changes["addr"], changes["bytes"])), strict=True)
    misses = _misses(recording, addr, set(listed))
    allocs, events = int((recording.rows["kind"] == R_ALLOC).sum()), len(recording.segment_events)
    missed = sum(miss.what == "alloc" for miss in misses)
    unforeseen = sum(miss.what != "alloc" and miss.recorded >= 0 for miss in misses)
    return Exactness(release, allocs, allocs - missed, events, events - unforeseen, misses)


def _misses(recording: Recording, addr: I64, model: set[SegmentEvent]) -> list[Miss]:
    """Where the model, which answered with `addr`, and the recording differ, in order; why is said of the first."""
    real = set(recording.segment_events)
    missed, invented = real - model, model - real
    asked = recording.rows["kind"] == R_ALLOC
    found = [
        (number, "alloc", int(recording.rows["size"][number]), int(recording.addr[number]), int(addr[number]))
        for number in np.flatnonzero(asked & (addr != recording.addr)).tolist()
    ]
    for number, taken, at, size in sorted(missed | invented):
        told, made = (at, -1) if (number, taken, at, size) in missed else (-1, at)
        found.append((number, "segment_alloc" if taken else "segment_free", size, told, made))
    # A segment's event comes before the allocation that it is for.
    found.sort(key=lambda miss: (miss[0], miss[1] == "alloc"))
    misses: list[Miss] = []
    for number, what, size, told, made in found:
        event = int(recording.event[min(number, len(recording.event) - 1)])
        why = f"the heaps differ since event {misses[0].event:,}" if misses else _why(what, told, bool(recording.segments))
        there, here = (at + recording.origin if at >= 0 else -1 for at in (told, made))
        misses.append(Miss(event, what, size, there, here, why))
    return misses


def _why(what: str, recorded: int, late: bool) -> str:
    """late: the recording begins with segments, of which it does not say everything."""
    if what == "alloc":
        return "the model takes other free memory" + (", as far as the start is known" if late else "")
    if what == "segment_free":
        return "not all of the cache was given back" if recorded < 0 else "what was given back is in use in the model"
    return "the model takes a segment for it" if recorded < 0 else "the model has a free block for it"


def _larger(recording: Recording, conf: Sequence[rules.Command], known: _Known, found: Exactness) -> _Known | None:
    """The size of a block of the start that explains where the first misplaced allocation went, if there is one.

    That it began where it did tells that the block before it reached as far: at most 1 MiB beyond its rounded request.
    """
    there, _ = _places(recording, found)
    parts = start.divisions(conf)
    for segment in recording.segments:
        if not segment.small and segment.addr < there < segment.end:
            sizes = segment.sizes(parts, known.sizes)
            before = [(b, size) for b, size in zip(segment.blocks, sizes, strict=True) if b.addr < there]
            if before:
                block, size = before[-1]
                whole = there - block.addr
                if size < whole <= start.rounded(block.requested, parts) + start.MIB:
                    return replace(known, sizes=known.sizes | {block.unit: whole})
    return None


def _older(recording: Recording, release: str, known: _Known, found: Exactness) -> _Known | None:
    """The segment it went to is older than the one where the model has it: where age counts, and both are of the start.

    A recording does not tell the ages; without this they are in the order of the addresses.
    """
    there, here = (
        next((i for i, segment in enumerate(known.segments) if segment.addr <= at < segment.end), -1)
        for at in _places(recording, found)
    )
    if release == RELEASES[0] or not 0 <= here < there:
        return None
    order = [*known.segments]
    order.insert(here, order.pop(there))
    return replace(known, segments=order)


def _places(recording: Recording, found: Exactness) -> tuple[int, int]:
    """Of the first misplaced allocation: where it was recorded, where the model has it; -1 when there is none."""
    first = next((miss for miss in found.misses if miss.what == "alloc"), None)
    return (first.recorded - recording.origin, first.model - recording.origin) if first else (-1, -1)
