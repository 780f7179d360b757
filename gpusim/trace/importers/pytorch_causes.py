"""Why memory was given back, where a snapshot's stacks tell.

PyTorch records a segment that goes with the stack of what gave it back: the request that follows, for which the device had no
room, or `torch.cuda.empty_cache()`.  Where stacks are recorded for allocations alone, it is that of the segment's allocation.
"""

from __future__ import annotations

from typing import Any

from gpusim.trace.importers.pytorch_parts import GIVEN, TAKEN, Event

PROGRAM, REQUEST = "program", "request"


def causes(events: list[Event], stacks: list[Any]) -> dict[int, str]:
    """Number of each event with which memory begins to be given back -> PROGRAM or REQUEST, where that is told.

    stacks  of each event its frames
    """
    found: dict[int, str] = {}
    for number, event in enumerate(events):
        if event.action not in GIVEN or (number and events[number - 1].action in GIVEN) or not stacks[number]:
            continue
        after = number
        while after < len(events) and events[after].action in GIVEN + TAKEN:
            after += 1
        same = after < len(events) and events[after].action in ("alloc", "oom") and stacks[after] == stacks[number]
        found[number] = REQUEST if same and not _empties(stacks[number]) else PROGRAM
    return found


def _empties(frames: Any) -> bool:
    return any(isinstance(frame, dict) and frame.get("name") == "empty_cache" for frame in frames)
