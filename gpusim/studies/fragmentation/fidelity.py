"""How exact is the model of PyTorch's allocator on this recording?

The recording's heap is rebuilt as it was before the first event, then all its requests go through the model (repeat.py).
Counted are the allocations that get the recorded address, and the segment events (taken, given back) that the model predicts:
at which request, which one, how large.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gpusim.policies.trials.requests import R_ALLOC
from gpusim.studies.fragmentation.differences import Miss
from gpusim.studies.fragmentation.repeat import Repeated, repeat
from gpusim.studies.fragmentation.snapshot import read
from gpusim.trace.trace import Trace


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
        return sum(miss.what.startswith("segment") and miss.recorded < 0 for miss in self.misses)

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
    """How exact the model is on this recording; "" for what is no snapshot with segments."""
    exact = how_exact(trace)
    return exact.text if exact else ""


def how_exact(trace: Trace) -> Exactness | None:
    """None where there is nothing to repeat: no snapshot with segments."""
    recording = read(trace)
    return exactness(repeat(recording)) if recording is not None and np.any(recording.rows["kind"] == R_ALLOC) else None


def exactness(found: Sequence[Repeated]) -> Exactness | None:
    """Of a recording that was repeated, best first."""
    if not found:
        return None
    best = found[0]
    allocs = int(((best.recording.rows["kind"] == R_ALLOC) & ~best.recording.failed).sum())
    events = len(best.recording.segment_events)
    missed = sum(miss.what == "alloc" for miss in best.misses)
    unforeseen = sum(miss.what.startswith("segment") and miss.recorded >= 0 for miss in best.misses)
    alike = tuple(sorted(tried.release for tried in found if tried.rank == best.rank))
    return Exactness(alike[0], allocs, allocs - missed, events, events - unforeseen, best.misses, best.settled, alike)
