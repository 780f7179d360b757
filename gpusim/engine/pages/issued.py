"""What the host of a managed program issues to one GPU, event after event.

Steps on streams go one behind the other there.  A step that the program waits for is on a stream of the host's: it waits for
the streams that the program synchronises with before, and all that is issued behind it waits for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpusim.programs.managed.steps import on_stream, reach
from gpusim.trace.trace import OP, RECORD, SYNC, WAIT

BY_HOST = -1


@dataclass(frozen=True)
class Issued:
    """Events of the trace, and of each operator the first that belongs to it and that behind its last.

    streams  of each operator, numbered from 0 on
    """

    kind: Any
    arg: Any
    stream: Any
    streams: Any
    first: list[int]
    outer: list[int]


def issued(steps: Sequence[Any], places: Sequence[int], gpus: int) -> Issued:
    """The operators at these places of the program; where the clock stops stands a wait for all of them."""
    keys = [steps[place].stream if on_stream(steps[place]) else BY_HOST for place in places]
    numbers = {key: q for q, key in enumerate(sorted(set(keys), key=lambda key: (key == BY_HOST, key)))}
    written = _Written(numbers)
    first, outer, end = list[int](), list[int](), 0
    for o, (place, key) in enumerate(zip(places, keys, strict=True)):
        first.append(len(written.rows))
        written.operator(o, key, getattr(steps[place], "after", None))
        while end <= place:
            end = max(reach(steps, end, gpus), end + 1)
        if o + 1 == len(places) or places[o + 1] >= end:
            written.stops()
        outer.append(len(written.rows))
    rows = np.array(written.rows, np.int64).reshape(-1, 3)
    return Issued(rows[:, 0], rows[:, 1], rows[:, 2], np.array([numbers[key] for key in keys]), first, outer)


class _Written:
    """Events as they are issued; those of a stream that wait for the host's are written when it has an operator again."""

    def __init__(self, numbers: dict[int, int]) -> None:
        self.numbers, self.rows, self.events = numbers, list[tuple[int, int, int]](), 0
        self.late: dict[int, int] = {}  # of a stream the event that it has yet to wait for
        self.used = set[int]()  # streams with operators that the host's has not waited for

    def operator(self, o: int, key: int, after: tuple[int, ...] | None) -> None:
        q = self.numbers[key]
        if key == BY_HOST:
            for other in sorted(self.used if after is None else self.used & set(after)):
                self._wait(q, self._record(self.numbers[other]))
                self.used.discard(other)
        elif key in self.late:
            self._wait(q, self.late.pop(key))
        self.rows.append((OP, o, q))
        if key == BY_HOST:
            event = self._record(q)
            self.late = {other: event for other in self.numbers if other != BY_HOST}
        else:
            self.used.add(key)

    def stops(self) -> None:
        """All that has been issued is waited for."""
        self.rows.append((SYNC, -1, 0))
        self.late, self.used = {}, set()

    def _record(self, q: int) -> int:
        self.rows.append((RECORD, self.events, q))
        self.events += 1
        return self.events - 1

    def _wait(self, q: int, event: int) -> None:
        self.rows.append((WAIT, event, q))
