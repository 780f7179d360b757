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

from gpusim.base.errors import PolicyError
from gpusim.base.tables import table
from gpusim.policies import registry
from gpusim.policies.place.parts import driver_memory as device
from gpusim.policies.place.parts.pytorch import rules
from gpusim.policies.trials.allocator_replay import ENDLESS, AllocatorReplay, replay
from gpusim.policies.trials.allocator_requests import AllocatorRequests, of_rows
from gpusim.policies.trials.requests import R_ALLOC, R_COMMAND, REQUEST
from gpusim.results import log as logs
from gpusim.studies.fragmentation import start
from gpusim.studies.fragmentation.differences import Miss, differences
from gpusim.studies.fragmentation.recorded import held
from gpusim.studies.fragmentation.snapshot import AllocatorRecording, read

RELEASES = ("2.11", "2.13")  # of equal free blocks the one at the lowest address, or of the oldest segment
MOST_ATTEMPTS = 64
MOST_FLIPS = 16


@dataclass(frozen=True)
class KnownStart:
    """The start as far as it is known: sizes of units' blocks, where a gap leaves them open; segments, oldest first."""

    sizes: dict[int, int]
    segments: list[start.Segment]


@dataclass(frozen=True)
class Repeated:
    """misses: in order; settled: how often a later event told more of the start; held: the same bytes, at the same requests."""

    recording: AllocatorRecording
    release: str
    known: KnownStart
    replay: AllocatorReplay
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


def repeat(recording: AllocatorRecording) -> list[Repeated]:
    """The recording under each release whose order of free blocks differs, best first; [] when none knows its settings.

    What was given back, and why, is read another way where that explains what comes next.
    """
    found = _explained(recording)
    if found and not found[0].exact and recording.capacity >= ENDLESS and recording.given_back:
        tight = read(recording.trace, int(held(recording.trace).max()))  # as if the device had had no more than was held
        tried = _explained(tight) if tight is not None else []
        found = tried if tried and tried[0].exact else found
    return found


def _explained(recording: AllocatorRecording) -> list[Repeated]:
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


def _releases(recording: AllocatorRecording) -> list[Repeated]:
    found = [tried for release in RELEASES if (tried := _under(recording, release))]
    return sorted(found, key=lambda tried: tried.rank, reverse=True)


def begin(recording: AllocatorRecording, known: KnownStart, release: str, conf: str | None = None) -> list[start.CommandRow]:
    """Commands and requests that lead to the recorded start, in an allocator with these settings (None: the recorded ones).

    Nothing of that depends on settings but the size of pages.
    """
    own = rules.commands(recording.conf, release, at_start=True)
    rows = start.lay(known.segments, recording.fronts, own, known.sizes)
    later = own if conf is None else rules.commands(conf, release, at_start=True)
    pages, then = ([c for c in commands if c[0] == rules.SET_LARGE_SEGMENT] for commands in (own, later))
    if pages == then or not any(segment.mapped for segment in known.segments):
        return rows
    return [(R_COMMAND, *pages[0]), *rows, (R_COMMAND, *then[0])]


def program(recording: AllocatorRecording, first: Sequence[start.CommandRow]) -> AllocatorRequests:
    """The recorded requests behind these."""
    rows = table(len(first) + len(recording.rows), REQUEST)
    rows[: len(first)], rows[len(first) :] = list(first), recording.rows
    event = np.concatenate([np.zeros(len(first), np.int64), recording.event])
    made = rows["kind"][: len(first)] == R_ALLOC
    of_start = recording.trace.meta["start"]["segments"] + rows["unit"][: len(first)]
    event[: len(first)][made] = np.minimum(of_start, recording.trace.events - 1)[made]
    return of_rows(recording.trace, rows, event, len(first))


def _under(recording: AllocatorRecording, release: str) -> Repeated | None:
    """Replay under this release, again whenever a misplaced allocation tells more of the start."""
    try:
        conf = rules.commands(recording.conf, release)
    except PolicyError:
        return None  # this release has not these settings
    best = attempt(recording, release, KnownStart(recording.sizes, recording.segments))
    for settled in range(1, MOST_ATTEMPTS):
        for learned in (_larger(best, conf), _older(best)):
            tried = attempt(recording, release, learned) if learned else best
            if learned and tried.misplaced > best.misplaced:  # it explains that allocation
                best = replace(tried, settled=settled)
                break
        else:
            break
    return best


def attempt(recording: AllocatorRecording, release: str, known: KnownStart) -> Repeated:
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
    misses, same = differences(recording, log, done.log, len(first))
    laid = not np.any((done.log["t"] < len(first)) & (done.log["kind"] == logs.OOM))
    return Repeated(recording, release, known, done, misses, same and laid)


def _larger(found: Repeated, conf: Sequence[rules.Command]) -> KnownStart | None:
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


def _older(found: Repeated) -> KnownStart | None:
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
