"""Memory that a program gave back to the device, and why: the program's own call, or a request.

Memory that was given back is the program's doing (`torch.cuda.empty_cache()`) unless a request explains it: one that follows
at once, for which the device had no room.  Whether it had is known when the recording tells the device's limit.  Where that
leaves it open, `repeat` tries the other reading.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass

import numpy as np

from gpusim.policies.trials.allocator_replay import ENDLESS
from gpusim.trace.trace import ALLOC, FREE, OOM, SEGMENT_ALLOC, SEGMENT_FREE, Trace


@dataclass(frozen=True)
class Release:
    """Segments, or pages, that are given back together: their events.

    wanted  bytes held before, and those that the request takes then which follows at once
    grows   there is one that takes some
    fails   there is one that fails
    cause   "program" or "request", where the recording tells it (importers/pytorch_causes.py)
    """

    events: list[int]
    wanted: int
    grows: bool
    fails: bool
    cause: str | None


def given_back(trace: Trace, first: int, causes: Mapping[int, str]) -> tuple[list[Release], int]:
    """What is given back, and bytes that are held at most.  causes: of an event, where it is told."""
    kind, size = trace.kind, trace.bytes
    at = first + np.flatnonzero(np.isin(kind[first:], (SEGMENT_ALLOC, SEGMENT_FREE, ALLOC, FREE, OOM)))
    held = int(size[:first][kind[:first] == SEGMENT_ALLOC].sum())
    gone = kind[at] == SEGMENT_FREE
    begins = np.flatnonzero(gone & ~np.concatenate([[False], gone[:-1]]))
    change = np.where(kind[at] == SEGMENT_ALLOC, size[at], np.where(gone, -size[at], 0))
    before = held + np.cumsum(change) - change
    groups: list[Release] = []
    for i in begins.tolist():
        end = i
        while end < len(at) and gone[end]:
            end += 1
        after, need = end, 0
        while after < len(at) and kind[at[after]] == SEGMENT_ALLOC:
            need += int(size[at[after]])
            after += 1
        fails = after < len(at) and kind[at[after]] == OOM
        events = at[i:end].tolist()
        groups.append(Release(events, int(before[i]) + need, need > 0, fails, causes.get(events[0])))
    return groups, int((before + change).max(initial=held))


def reading(groups: list[Release], most: int, limit: int, flipped: Set[int]) -> tuple[list[int], list[int], int]:
    """(events at which the program gave its cache back, events of what requests gave back, the device's limit).

    most  bytes that were held at most; the device had less than a request needed that made room
    """
    if limit >= ENDLESS:
        refused = min((g.wanted for g in groups if g.cause == "request" and g.grows and not g.fails), default=0)
        limit = refused - 1 if refused > most else limit
    program: list[int] = []
    request: list[int] = []
    for group in groups:
        of_request = group.fails or (group.grows and group.wanted > limit and group.cause != "program")
        if (group.fails or group.grows) and of_request != (group.events[0] in flipped):
            request += group.events
        else:
            program.append(group.events[0])
    return program, request, limit
