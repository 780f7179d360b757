"""The program as it ran, to compare every other setting with.

The recorded setting is replayed from the recorded start: segments cached before the recording began, the program's own
`empty_cache` calls and the device's limit included.  Only if that gives the recorded held bytes, segment events and outcome,
can the same replay under another setting say what that would have changed.

Where a recording begins in the middle of a program, what another setting would have cached before is not known.  So each
setting is replayed twice: from what was in use alone, and from the recorded heap.  Each is compared with the own setting,
replayed in the same way; forgetting what was cached is no saving.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from gpusim.base.errors import PolicyError, TraceError
from gpusim.base.units import show_bytes
from gpusim.policies import registry
from gpusim.policies.trials.allocator_replay import ENDLESS, AllocatorReplay, replay
from gpusim.policies.trials.allocator_requests import AllocatorRequests, of_trace
from gpusim.policies.trials.requests import R_ALLOC
from gpusim.studies.fragmentation.candidates import DRIVER, Candidate, default
from gpusim.studies.fragmentation.candidates import pytorch as candidate_of
from gpusim.studies.fragmentation.differences import Miss
from gpusim.studies.fragmentation.recorded import INCOMPLETE, capacity_of, held
from gpusim.studies.fragmentation.repeat import Repeated, begin, program, repeat
from gpusim.studies.fragmentation.snapshot import AllocatorRecording, read
from gpusim.studies.fragmentation.start import CommandRow
from gpusim.trace.trace import SEGMENT_ALLOC, Trace

NO_REQUEST = "The snapshot records no allocation, so nothing can be replayed: switch the history on before the program runs."
NO_SEGMENTS = "The recorded segments are none that PyTorch takes from a device: whole pages of 2 MiB, blocks inside of them."
DEVICE = 80 << 30  # bytes of a device where no machine is named: some allocators take a share of it at once


@dataclass(frozen=True)
class Baseline:
    """The own setting, replayed from the recorded start, held against the recording.

    exact     held bytes, segment events and outcome (served or out of memory) are the recorded ones, as far as there are any
    reason    "" when exact; else one sentence: what differs first, or what the recording lacks
    assumed   "" when the recording tells setting and segments; else one sentence: what is taken for granted instead
    own       the setting
    replay    it, from the recorded start
    bare      it, from what was in use at the start alone; the same where the recording begins with an empty device
    error     bytes by which the peaks of what is held differ (0 when exact)
    capacity  bytes that the allocator may hold, ENDLESS when unknown
    """

    trace: Trace
    exact: bool
    reason: str
    assumed: str
    own: Candidate
    replay: AllocatorReplay
    bare: AllocatorReplay
    error: int
    capacity: int
    repeated: Repeated | None = None
    others: tuple[Repeated, ...] = ()

    @property
    def late(self) -> bool:
        """The recording begins in the middle of the program, with segments held."""
        return self.bare is not self.replay

    @cached_property
    def compared(self) -> tuple[AllocatorReplay, AllocatorReplay]:
        """The own setting as (bare, replay), where allocators may hold `capacity`: what others are compared with."""
        found = self.repeated
        if found is None or self.capacity == found.recording.capacity:
            return self.bare, self.replay
        bare = _from_use(found.recording, self.own, found.release, self.capacity)
        return bare, _replayed(self.replay.program, self.own, self.capacity, found.release) if self.late else bare

    @property
    def ran(self) -> SettingOutcome:
        """The own setting where allocators may hold `capacity`, as an outcome."""
        return SettingOutcome(self.own, *self.compared, (0, 0))


@dataclass(frozen=True)
class SettingOutcome:
    """The program under a candidate.  Where the start leaves open what it would have held, the truth lies about between.

    low     from what was in use at the start alone
    high    from the recorded heap; the same replay when the recording begins with an empty device, or when the candidate's
            allocator cannot begin with another's heap
    saving  bytes (least, most) less than the own setting held, replayed in the same way; negative: more
    """

    candidate: Candidate
    low: AllocatorReplay
    high: AllocatorReplay
    saving: tuple[int, int]

    @property
    def held(self) -> tuple[int, int]:
        """Most bytes held at once: (least, most)."""
        first, second = sorted((self.low.held_peak, self.high.held_peak))
        return first, second

    @property
    def fits(self) -> bool:
        """No request is refused, however the program began."""
        return self.low.fits and self.high.fits

    @property
    def open(self) -> bool:
        """Whether all requests are served depends on what the setting would have cached before the recording."""
        return self.low.fits != self.high.fits


def baseline(trace: Trace, capacity: int | None = None) -> Baseline:
    """The program as it ran.

    capacity  bytes that allocators may hold; None: what the recording tells of a request that failed, else no limit
    Raises TraceError for a recording that does not tell what was held.
    """
    if trace.meta.get("incomplete"):
        raise TraceError(f"the snapshot does not tell all: {trace.meta['incomplete']}", trace.name, INCOMPLETE)
    recording = read(trace)
    if recording is None:
        return _assumed(trace, capacity)
    found = []
    if capacity and recording.capacity >= ENDLESS and capacity >= _held_peak(trace):  # it tells what made room for requests
        tried = repeat(read(trace, capacity) or recording)
        found = tried if tried and tried[0].exact else []
    found = found or repeat(recording)
    if not found:
        return _unknown(recording, capacity or recording.capacity)
    best, recording = found[0], found[0].recording
    limit = capacity or recording.capacity
    own = candidate_of(recording.conf)
    ran = replace(best.replay, name=own.label)
    error = abs(ran.held_peak - _held_peak(recording.trace))
    told = "" if recording.told else "The snapshot tells no settings of the allocator: the default ones are taken for granted."
    bare = _from_use(recording, own, best.release, recording.capacity) if recording.segments else ran
    empty = not np.any(recording.rows["kind"] == R_ALLOC)
    reason = NO_REQUEST if empty else "" if best.exact else _reason(recording, best.misses)
    return Baseline(trace, not reason, reason, told, own, ran, bare, error, limit, best, tuple(found[1:]))


def under(base: Baseline, candidate: Candidate) -> SettingOutcome:
    """The same program under another setting or allocator, from the same start.  Raises PolicyError for one not known."""
    found = base.repeated
    if found is None:
        low = _replayed(base.replay.program, candidate, base.capacity)
        saving = base.replay.held_peak - low.held_peak
        return SettingOutcome(candidate, low, low, (saving, saving))
    recording = found.recording
    low = _from_use(recording, candidate, found.release, base.capacity)
    high = low
    if base.late and candidate.place == "pytorch":
        conf = str(dict(candidate.params).get("conf", ""))
        asked = program(recording, begin(recording, found.known, found.release, conf))
        high = _replayed(asked, candidate, base.capacity, found.release)
    bare, own = base.compared
    savings = [bare.held_peak - low.held_peak]
    if high is not low:
        savings.append(own.held_peak - high.held_peak)
    return SettingOutcome(candidate, low, high, (min(savings), max(savings)))


def changed(base: Baseline, edit: Callable[[AllocatorRequests], AllocatorRequests]) -> SettingOutcome:
    """The program with its requests edited, under its own setting and from the same start."""
    own = base.ran
    low = ran_as(base, edit(own.low.program))
    high = low if own.high is own.low else ran_as(base, edit(own.high.program))
    savings = own.low.held_peak - low.held_peak, own.high.held_peak - high.held_peak
    return SettingOutcome(base.own, low, high, (min(savings), max(savings)))


def ran_as(base: Baseline, asked: AllocatorRequests, capacity: int | None = None) -> AllocatorReplay:
    """Other requests, or the same on another device, under the own setting."""
    return _replayed(asked, base.own, capacity or base.capacity, base.repeated.release if base.repeated else "")


def _from_use(recording: AllocatorRecording, candidate: Candidate, release: str, capacity: int) -> AllocatorReplay:
    """Replay that begins with the blocks that were in use, requested by address, and nothing cached."""
    first: list[CommandRow] = [
        (R_ALLOC, block.unit, block.requested, segment.stream)
        for segment in sorted(recording.segments, key=lambda s: s.addr) for block in segment.blocks
    ]  # fmt: skip
    return _replayed(program(recording, first), candidate, capacity, release)


def _replayed(asked: AllocatorRequests, candidate: Candidate, capacity: int, release: str = "") -> AllocatorReplay:
    """An allocator that takes a share of the device at once is told one, where the recording knows none."""
    own = candidate.place == "pytorch"
    policy = candidate.policy(**({"release": release} if own and release else {}))
    endless = capacity >= ENDLESS
    room = max(DEVICE, 2 * int(asked.asked().max(initial=0))) if endless and not own else capacity
    return replace(replay(asked, policy, room, log=True), name=candidate.label)


def _assumed(trace: Trace, capacity: int | None) -> Baseline:
    """A recording without segments: there is nothing to hold the replay against."""
    own = default(trace)[0]
    limit = capacity or capacity_of(trace)
    done = _replayed(of_trace(trace), own, limit)
    if np.any(trace.kind == SEGMENT_ALLOC):
        return Baseline(trace, False, NO_SEGMENTS, "", own, done, done, abs(done.held_peak - _held_peak(trace)), limit)
    name = "the default setting" if own.place == "pytorch" and not own.params else own.how or own.place
    assumed = f"The recording tells no segments of its allocator: taken for granted is {name}, from an empty device."
    return Baseline(trace, True, "", assumed, own, done, done, 0, limit)


def _unknown(recording: AllocatorRecording, limit: int) -> Baseline:
    """The settings are none that the model has."""
    own = candidate_of("")
    why = ""
    try:
        candidate = candidate_of(recording.conf)
        registry.bind(registry.find("place", candidate.place), candidate.spec["params"])
        if recording.conf.replace(" ", "") == DRIVER:
            why = "the program ran with cudaMallocAsync, whose heap a snapshot does not tell"
    except PolicyError as refusal:
        why = str(refusal)
    done = _from_use(recording, own, "", limit)
    reason = f"The recorded setting '{recording.conf}' cannot be replayed: {why}."
    error = abs(done.held_peak - _held_peak(recording.trace))
    return Baseline(recording.trace, False, reason, "", own, done, done, error, limit)


def _held_peak(trace: Trace) -> int:
    return int(held(trace).max(initial=0))


def _reason(recording: AllocatorRecording, misses: list[Miss]) -> str:
    """What differs first."""
    first = next((miss for miss in misses if miss.what != "alloc"), None)
    if first is None:
        return "The recorded start cannot be laid out: segments or blocks of it are none that the recorded setting makes."
    there = [miss for miss in misses if miss.event == first.event]
    failed = next((miss for miss in there if miss.what == "oom"), None)
    if failed is None:
        real, model = ([m for m in there if (m.recorded >= 0) == recorded] for recorded in (True, False))
        what = f"the recorded allocator {_change(real)}, the replay {_change(model)}"
    elif failed.model >= 0:
        free = int(recording.trace.addr[first.event])
        left = f" with {show_bytes(free)} free on the device" if free >= failed.bytes else ""
        what = f"a request of {show_bytes(failed.bytes)} failed{left}, and the replay serves it"
    else:
        what = f"a request of {show_bytes(failed.bytes)} was served, and fails in the replay"
    setting = f"'{recording.conf}'" if recording.conf else "the default"
    return (
        f"The recorded setting ({setting}), replayed from the recorded start, does not give what was recorded: "
        f"at event {first.event:,} {what}."
    )


def _change(misses: list[Miss]) -> str:
    """What is taken from the device and given back."""
    verbs = {"segment_alloc": "takes", "segment_free": "gives back", "segment_map": "maps", "segment_unmap": "unmaps"}
    sums = {verb: sum(miss.bytes for miss in misses if miss.what == what) for what, verb in verbs.items()}
    return " and ".join(f"{verb} {show_bytes(size)}" for verb, size in sums.items() if size) or "does nothing of the kind"
