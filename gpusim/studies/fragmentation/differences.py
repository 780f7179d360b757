"""Where the model of PyTorch's allocator and a recording part: addresses, segments, outcomes."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpusim.policies.trials.requests import R_ALLOC
from gpusim.results import log as logs
from gpusim.studies.fragmentation import start
from gpusim.studies.fragmentation.snapshot import VIRTUAL, AllocatorRecording, SegmentEvent
from gpusim.trace.trace import I64


@dataclass(frozen=True)
class Miss:
    """Something that the model did not do as recorded.

    event     index of the trace's event: the allocation, or the one that a segment was taken or given back for
    what      "alloc", "segment_alloc", "segment_free", "segment_map", "segment_unmap" or "oom": the one was served and the
              other was not
    recorded  address, -1: the recording has no such segment event, or did not serve the request
    model     the same of the model
    """

    event: int
    what: str
    bytes: int
    recorded: int
    model: int
    why: str


def differences(recording: AllocatorRecording, log: Any, whole: Any, first: int) -> tuple[list[Miss], bool]:
    """Where the model and the recording differ, in order, why is said of the first; whether the bytes held are the same."""
    addr = _answers(recording, log, whole, first)
    changes = log[(log["kind"] == logs.RESERVE) | (log["kind"] == logs.RELEASE)]
    taken = changes["kind"] == logs.RESERVE
    where = np.where(changes["addr"] >= VIRTUAL, -1, changes["addr"])
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
        served = 0 if recording.failed[number] else -1  # in the model; the recording is the other way round
        found.append((number, "oom", int(recording.rows["size"][number]), -1 - served, served))
    for change, n in ((real - model) + (model - real)).items():
        number, taken, place, size = change
        told, did = (max(place, 0), -1) if real[change] > model[change] else (-1, max(place, 0))
        what = ("segment_map" if taken else "segment_unmap") if place < 0 else "segment_alloc" if taken else "segment_free"
        found += [(number, what, size, told, did)] * n
    # A segment's event comes before the allocation that it is for.
    found.sort(key=lambda miss: (miss[0], miss[1] in ("alloc", "oom")))
    misses: list[Miss] = []
    for number, what, size, told, did in found:
        event = int(recording.event[min(number, len(recording.event) - 1)])
        why = f"the heaps differ since event {misses[0].event:,}" if misses else _why(what, told, did, bool(recording.segments))
        there, here = (at + recording.origin if at >= 0 else -1 for at in (told, did))
        misses.append(Miss(event, what, size, there, here, why))
    return misses, _bytes(real) == _bytes(model)


def _bytes(events: Counter[SegmentEvent]) -> Counter[tuple[int, bool, bool, int]]:
    """Without addresses, but for whether there is one: pages have none here."""
    found: Counter[tuple[int, bool, bool, int]] = Counter()
    for (number, taken, addr, size), n in events.items():
        found[number, taken, addr < 0, size] += n
    return found


def _answers(recording: AllocatorRecording, log: Any, whole: Any, first: int) -> I64:
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
    moments = whole[((whole["kind"] == logs.RESERVE) | (whole["kind"] == logs.PLACE)) & (whole["addr"] >= VIRTUAL)]
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
    if what in ("segment_free", "segment_unmap"):
        return "not all of the cache was given back" if recorded < 0 else "what was given back is in use in the model"
    return "the model takes a segment for it" if recorded < 0 else "the model has a free block for it"
