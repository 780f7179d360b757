"""A recording's requests through the model of PyTorch's allocator, from the recorded start, held against what was recorded.

The device answers with the recorded addresses of segments.  What the recording leaves open of its start and shows only later
is settled on the way: a block's size, which of two segments is older.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gpusim.core import log as logs
from gpusim.core.requests import R_ALLOC, R_COMMAND, REQUEST
from gpusim.core.tables import table
from gpusim.errors import PolicyError
from gpusim.fragment import start
from gpusim.fragment.recorded import held
from gpusim.fragment.replay import ENDLESS, Replay, replay
from gpusim.fragment.requests import Requests, of_rows
from gpusim.fragment.snapshot import Recording, SegmentEvent, read
from gpusim.policies import device, registry
from gpusim.policies.pytorch import rules
from gpusim.trace.trace import I64

RELEASES = ("2.11", "2.13")  # of equal free blocks the one at the lowest address, or of the oldest segment
MOST_ATTEMPTS = 64
MOST_FLIPS = 16


@dataclass(frozen=True)
class Miss:
    """Something that the model did not do as recorded.

    event     index of the trace's event: the allocation, or the one that a segment was taken or given back for
    what      "alloc", "segment_alloc", "segment_free" or "oom": the one was served and the other was not
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
class Known:
    """The start as far as it is known: sizes of units' blocks, where a gap leaves them open; segments, oldest first."""

    sizes: dict[int, int]
    segments: list[start.Segment]


@dataclass(frozen=True)
class Repeated:
    """misses: in order; settled: how often a later event told more of the start; held: the same bytes, at the same requests."""

    recording: Recording
    release: str
    known: Known
    replay: Replay
    misses: list[Miss]
    held: bool
    settled: int = 0

    @property
    def misplaced(self) -> float:
        """The event of the first allocation that went elsewhere, endless when all are as recorded."""
        return next((miss.event for miss in self.misses if miss.what == "alloc"), math.inf)

    @property
    def parts(self) -> float:
        """The event of the first segment, or outcome, that is not as recorded, endless when all are."""
        return next((miss.event for miss in self.misses if miss.what != "alloc"), math.inf)

    @property
    def exact(self) -> bool:
        """Held bytes, segment events and what was served are those of the recording."""
        return self.held and not any(miss.what == "oom" for miss in self.misses)

    @property
    def rank(self) -> tuple[Any, ...]:
        count = Counter(miss.what for miss in self.misses)
        return self.exact, -count["alloc"], -len(self.misses) + count["alloc"], -self.settled


def repeat(recording: Recording) -> list[Repeated]:
    """The recording under each release whose order of free blocks differs, best first; [] when none knows its settings.

    What was given back, and why, is read another way where that explains what comes next.
    """
    found = _explained(recording)
    if found and not found[0].exact and recording.capacity >= ENDLESS and recording.given_back:
        tight = read(recording.trace, int(held(recording.trace).max()))  # as if the device had had no more than was held
        tried = _explained(tight) if tight is not None else []
        found = tried if tried and tried[0].exact else found
    return found


def _explained(recording: Recording) -> list[Repeated]:
    best, flipped = _releases(recording), frozenset[int]()
    while best and not best[0].exact and len(flipped) < MOST_FLIPS:
        at = bisect_right(recording.given_back, best[0].parts) - 1
        if at < 0 or recording.given_back[at] in flipped:
            break
        flipped |= {recording.given_back[at]}
        other = read(recording.trace, recording.capacity, flipped)
        tried = _releases(other) if other is not None else []
        if not tried or tried[0].parts <= best[0].parts:
            break
        best = tried
    return best


def _releases(recording: Recording) -> list[Repeated]:
    found = [tried for release in RELEASES if (tried := _under(recording, release))]
    return sorted(found, key=lambda tried: tried.rank, reverse=True)


def begin(recording: Recording, known: Known, release: str, conf: str | None = None) -> list[start.Row]:
    """Commands and requests that lead to the recorded start; then these settings hold (None: the recorded ones)."""
    own = rules.commands(recording.conf, release, at_start=True)
    rows = start.lay(known.segments, recording.fronts, own, known.sizes)
    later = own if conf is None else rules.commands(conf, release, at_start=True)
    if not rows:
        return []  # the allocator is made with its settings
    return [*rows, (R_COMMAND, rules.SET_LARGE_SEGMENT, rules.LARGE_SEGMENT * start.MIB, 0), *((R_COMMAND, *c) for c in later)]


def program(recording: Recording, first: Sequence[start.Row]) -> Requests:
    """The recorded requests behind these."""
    rows = table(len(first) + len(recording.rows), REQUEST)
    rows[: len(first)], rows[len(first) :] = list(first), recording.rows
    event = np.concatenate([np.zeros(len(first), np.int64), recording.event])
    made = rows["kind"][: len(first)] == R_ALLOC
    of_start = recording.trace.meta["start"]["segments"] + rows["unit"][: len(first)]
    event[: len(first)][made] = np.minimum(of_start, recording.trace.events - 1)[made]
    return of_rows(recording.trace, rows, event, len(first))


def _under(recording: Recording, release: str) -> Repeated | None:
    """Replay under this release, again whenever a misplaced allocation tells more of the start."""
    try:
        conf = rules.commands(recording.conf, release)
    except PolicyError:
        return None  # this release has not these settings
    best = attempt(recording, release, Known(recording.sizes, recording.segments))
    for settled in range(1, MOST_ATTEMPTS):
        for learned in (_larger(best, conf), _older(best)):
            tried = attempt(recording, release, learned) if learned else best
            if learned and tried.misplaced > best.misplaced:  # it explains that allocation
                best = replace(tried, settled=settled)
                break
        else:
            break
    return best


def attempt(recording: Recording, release: str, known: Known) -> Repeated:
    first = begin(recording, known, release)
    asked = program(recording, first)
    params = {"release": release, "conf": recording.conf, "device": "recorded"}
    policy = registry.get("place", {"name": "pytorch", "params": params})
    events = zip(recording.segment_events, recording.mapped, strict=True)
    later = [(addr, size) for (_, taken, addr, size), paged in events if taken and not paged]
    segments = [(s.addr, s.size) for s in known.segments if not s.mapped] + later
    answers = [(addr - recording.plain, size) for addr, size in segments]
    done = replay(asked, policy, recording.capacity, log=True, recorded=answers)
    log = done.log[done.log["t"] >= len(first)]
    log["t"] -= len(first)
    if answers:
        log["addr"][(log["addr"] >= 0) & (log["addr"] < device.VIRTUAL)] += recording.plain
    misses, held = _misses(recording, log, done.log, len(first))
    return Repeated(recording, release, known, done, misses, held)


def _misses(recording: Recording, log: Any, whole: Any, first: int) -> tuple[list[Miss], bool]:
    """Where the model and the recording differ, in order, why is said of the first; whether the bytes held are the same."""
    addr = _answers(recording, log, whole, first)
    changes = log[(log["kind"] == logs.RESERVE) | (log["kind"] == logs.RELEASE)]
    taken = changes["kind"] == logs.RESERVE
    where = np.where(changes["addr"] >= device.VIRTUAL, -1, changes["addr"])
    columns = [c.tolist() for c in (changes["t"], taken, where, changes["bytes"])]
    model: Counter[SegmentEvent] = Counter(zip(*columns, strict=True))
    real = Counter(
        (number, taken, -1 if paged else addr, size)
        for (number, taken, addr, size), paged in zip(recording.segment_events, recording.mapped, strict=True)
    )
    made = recording.rows["kind"] == R_ALLOC
    found = [
        (number, "alloc", int(recording.rows["size"][number]), int(recording.addr[number]), int(addr[number]))
        for number in np.flatnonzero(made & ~recording.failed & (addr != recording.addr)).tolist()
    ]
    refused = np.zeros(len(recording.rows), bool)
    refused[log["t"][log["kind"] == logs.OOM]] = True
    for number in np.flatnonzero(made & (refused != recording.failed)).tolist():
        found.append((number, "oom", int(recording.rows["size"][number]), -1, int(addr[number])))
    for change, n in ((real - model) + (model - real)).items():
        number, taken, place, size = change
        told, did = (max(place, 0), -1) if real[change] > model[change] else (-1, max(place, 0))
        found += [(number, "segment_alloc" if taken else "segment_free", size, told, did)] * n
    # A segment's event comes before the allocation that it is for.
    found.sort(key=lambda miss: (miss[0], miss[1] in ("alloc", "oom")))
    misses: list[Miss] = []
    for number, what, size, told, did in found:
        event = int(recording.event[min(number, len(recording.event) - 1)])
        why = f"the heaps differ since event {misses[0].event:,}" if misses else _why(what, told, did, bool(recording.segments))
        there, here = (at + recording.origin if at >= 0 else -1 for at in (told, did))
        misses.append(Miss(event, what, size, there, here, why))
    return misses, _bytes(real) == _bytes(model)


def _bytes(events: Counter[SegmentEvent]) -> Counter[tuple[int, bool, int]]:
    found: Counter[tuple[int, bool, int]] = Counter()
    for (number, taken, _, size), n in events.items():
        found[number, taken, size] += n
    return found


def _answers(recording: Recording, log: Any, whole: Any, first: int) -> I64:
    """The model's address of each request, as a recorded one; -1: none.

    Where the model has a range of addresses says nothing.  That it maps pages for the same request as the recording tells
    which of the recording's ranges it is.
    """
    found = np.full(len(recording.rows), -1, np.int64)
    placed = log[log["kind"] == logs.PLACE]
    found[placed["t"]] = placed["addr"]
    if not recording.expandable:
        return found
    pairs: dict[tuple[int, int], list[int]] = {}
    for (number, taken, addr, size), paged in zip(recording.segment_events, recording.mapped, strict=True):
        if taken and paged:
            pairs.setdefault((number, size), []).append(addr)
    runs = [run.addr for runs in start.ranges(recording.segments) for run in runs]
    shift: dict[int, int] = {}  # model's address of pages -> the recorded one less it
    known: list[int] = []
    moments = whole[((whole["kind"] == logs.RESERVE) | (whole["kind"] == logs.PLACE)) & (whole["addr"] >= device.VIRTUAL)]
    for t, kind, addr, size in moments[["t", "kind", "addr", "bytes"]].tolist():
        if kind == logs.RESERVE:
            told = runs if t < first else pairs.get((t - first, size))
            if told:
                shift[addr] = told.pop(0) - addr
                known = sorted(shift)
        elif t >= first:
            at = bisect_right(known, addr) - 1
            found[t - first] = addr + shift[known[at]] if at >= 0 else -1
    return found


def _why(what: str, recorded: int, model: int, late: bool) -> str:
    """late: the recording begins with segments, of which it does not say everything."""
    if what == "oom":
        return "the model serves a request that failed" if model >= 0 else "the model has no room for it, and it was served"
    if what == "alloc":
        return "the model takes other free memory" + (", as far as the start is known" if late else "")
    if what == "segment_free":
        return "not all of the cache was given back" if recorded < 0 else "what was given back is in use in the model"
    return "the model takes a segment for it" if recorded < 0 else "the model has a free block for it"


def _larger(found: Repeated, conf: Sequence[rules.Command]) -> Known | None:
    """The size of a block of the start that explains where the first misplaced allocation went, if there is one.

    That it began where it did tells that the block before it reached as far: at most 1 MiB beyond its rounded request.
    """
    known, (there, _) = found.known, _places(found)
    parts = start.divisions(conf)
    for segment in known.segments:
        if not segment.small and not segment.mapped and segment.addr < there < segment.end:
            sizes = segment.sizes(parts, known.sizes)
            before = [(b, size) for b, size in zip(segment.blocks, sizes, strict=True) if b.addr < there]
            if before:
                block, size = before[-1]
                whole = there - block.addr
                if size < whole <= start.rounded(block.requested, parts) + start.MIB:
                    return replace(known, sizes=known.sizes | {block.unit: whole})
    return None


def _older(found: Repeated) -> Known | None:
    """The segment it went to is older than the one where the model has it: where age counts, and both are of the start.

    A recording does not tell the ages; without this they are in the order of the addresses.
    """
    known = found.known
    there, here = (
        next((i for i, segment in enumerate(known.segments) if segment.addr <= at < segment.end), -1) for at in _places(found)
    )
    if found.release == RELEASES[0] or not 0 <= here < there:
        return None
    order = [*known.segments]
    order.insert(here, order.pop(there))
    return replace(known, segments=order)


def _places(found: Repeated) -> tuple[int, int]:
    """Of the first misplaced allocation: where it was recorded, where the model has it; -1 when there is none."""
    origin = found.recording.origin
    first = next((miss for miss in found.misses if miss.what == "alloc"), None)
    return (first.recorded - origin, first.model - origin) if first else (-1, -1)
