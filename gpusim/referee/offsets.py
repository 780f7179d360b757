"""Is a static plan right: does no buffer overlap another in time and place, and do all lie within the capacity?

It shares no code with the planners.  Buffers are swept in time; those alive are kept in the order of their offsets, where
each new one has to fit between its neighbours.  O(n log n) comparisons.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from gpusim.referee.report import Findings, Report


def check_offsets(
    lower: Sequence[int], upper: Sequence[int], size: Sequence[int], offset: Sequence[int], capacity: int | None = None
) -> Report:
    """Buffer i holds size[i] bytes from offset[i] over the ticks [lower[i], upper[i]); a violation's record is a buffer."""
    found = Findings()
    events = []
    for i, (begins, ends, length, place) in enumerate(zip(lower, upper, size, offset, strict=True)):
        if ends <= begins or length < 0:
            found.say(i, f"{length} bytes from tick {begins} to {ends}", "a size and a life")
            continue
        if place < 0 or (capacity is not None and place + length > capacity):
            found.say(i, f"bytes {place} to {place + length}", f"0 to {'any' if capacity is None else capacity}")
        if length:
            events += [(begins, 1, i), (ends, 0, i)]
    alive: list[tuple[int, int]] = []  # (offset, buffer), which do not overlap
    for tick, is_start, i in sorted(events):
        entry = (offset[i], i)
        at = bisect_left(alive, entry)
        if not is_start:
            if at < len(alive) and alive[at] == entry:
                del alive[at]
            continue
        for _, other in alive[max(0, at - 1) : at + 1]:
            if offset[i] < offset[other] + size[other] and offset[other] < offset[i] + size[i]:
                found.say(i, f"overlaps buffer {other} at tick {tick}", "bytes of its own")
                break
        else:
            alive.insert(at, entry)  # one that overlaps is reported and left out, so that its neighbours stay in order
    found.count("buffers", len(size))
    return found.report()
