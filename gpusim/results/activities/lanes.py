"""Which rows share a line of the timeline: those of a stream, of its stalls, of a slot of a copy engine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from gpusim.base.compiled import kept
from gpusim.results.activities.memory import tiers
from gpusim.results.activities.rows import ActivityLane
from gpusim.trace.trace import I64

WAYS = ("swap in", "swap out")


class LanesFound:
    """Lanes as they are found; the methods give the number of the lane of each row."""

    def __init__(self) -> None:
        self.found: list[ActivityLane] = []

    def add(self, name: str, group: str, number: int = 0) -> int:
        self.found.append(ActivityLane(name, group, number))
        return len(self.found) - 1

    def streams(self, stream: I64, stalls: bool = False) -> I64:
        """Of operators on these streams, or of their stalls."""
        name, group = ("stream {}: stalls", "stall") if stalls else ("stream {}", "stream")
        numbers, of = np.unique(stream, return_inverse=True)
        lanes = [self.add(name.format(q), group, q) for q in numbers.tolist()]
        found: I64 = np.array(lanes, np.int64)[of]
        return found

    def engines(self, spec: Mapping[str, Any], copy: I64, rows: npt.NDArray[np.void]) -> I64:
        """Of swaps, by what the log says in `b` of their COPY: a lane for each direction and slot of a copy engine."""
        memories = tiers(spec)
        engines = list(dict.fromkeys(tier["queue"] for tier in memories))
        engine = np.array([engines.index(tier["queue"]) for tier in memories])[np.maximum(copy >> 8 & 255, copy & 255) - 1]
        out = np.zeros(len(copy), np.int64)
        for number, way in np.unique(np.stack([engine, copy & 255 != 0]), axis=1).T.tolist():
            mine = np.flatnonzero((engine == number) & ((copy & 255 != 0) == way))
            kinds = [tier["kind"] for tier in memories if tier["queue"] == engines[number]]
            name = WAYS[way] if len(engines) == 1 else f"{WAYS[way]}, {' and '.join(kinds)}"
            slot = slots(rows["start"][mine], rows["end"][mine])
            lanes = [self.add(name if i == 0 else f"{name} ({i + 1})", "copy engine") for i in range(int(slot.max()) + 1)]
            out[mine] = np.array(lanes)[slot]
        return out


def slots(start: I64, end: I64) -> I64:
    """Of spans the first of 0, 1, ... that is free as they begin, so that those of one number do not overlap."""
    out = np.zeros(len(start), np.int64)
    order = np.lexsort((end, start))
    if (start[order][1:] < np.maximum.accumulate(end[order])[:-1]).any():
        _slots(np.ascontiguousarray(start), np.ascontiguousarray(end), order, out, np.zeros(len(start), np.int64))
    return out


@kept()
def _slots(start: Any, end: Any, order: Any, out: Any, free: Any) -> None:
    """free: int64[spans], when each slot is free again."""
    for i in order:
        slot = 0
        while free[slot] > start[i]:
            slot += 1
        out[i] = slot
        free[slot] = end[i]
