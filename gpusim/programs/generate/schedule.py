"""Which sections of a tape are played when, and the requests that this makes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numba import typeof, types

from gpusim.base.compiled import entry
from gpusim.base.tables import table
from gpusim.policies.trials.allocator_requests import AllocatorRequests
from gpusim.policies.trials.requests import REQUEST
from gpusim.programs.generate.tape import ROW

i8 = np.int64
PIECE = 1 << 19  # requests: 16 MiB

PLAY = np.dtype(
    [("time", i8),      # ms since the program's start
     ("first", i8), ("end", i8),  # rows of the tape
     ("number", i8),    # what its sizes are affine in
     ("base", i8),      # added to its units
     ("stream", i8)]
)  # fmt: skip


@dataclass(frozen=True)
class RequestSchedule:
    """A generated program.

    rows   the tape
    plays  makes its plays again from the start, ordered by time: arrays of PLAY, each good until the next is asked for
    units  ids of units are below it
    known  number of requests where it is known, -1: the plays are made once to count them
    """

    name: str
    rows: Any
    plays: Callable[[], Iterator[Any]]
    units: int
    known: int = -1

    @cached_property
    def total(self) -> int:
        """Number of requests."""
        return self.known if self.known >= 0 else sum(int((p["end"] - p["first"]).sum()) for p in self.plays())

    def requests(self) -> AllocatorRequests:
        """Unit ids are used again at once, so that there are hardly more of them than units alive."""
        return AllocatorRequests(self.name, self._pieces, self.total, self.units, self.units)

    def _pieces(self) -> Iterator[Any]:
        piece, filled, at = table(PIECE, REQUEST), 0, np.zeros(2, np.int64)
        for plays in self.plays():
            at[:] = 0
            while at[0] < len(plays):
                filled = expand(self.rows, plays, at, piece, filled)
                if filled == PIECE:
                    yield piece
                    piece, filled = table(PIECE, REQUEST), 0
        if filled:
            yield piece[:filled]


@entry(
    types.int64(
        typeof(table(1, ROW)), typeof(table(1, PLAY)), types.Array(types.int64, 1, "C"), typeof(table(1, REQUEST)),
        types.int64,
    )
)  # fmt: skip
def expand(rows: Any, plays: Any, at: Any, out: Any, filled: int) -> int:
    """Write the requests of plays[at[0]:] from row at[1] of the first to out[filled:]; returns how much of it is filled."""
    p, done = at[0], at[1]
    while p < plays.size and filled < out.size:
        play = plays[p]
        first = play.first + done
        count = min(play.end - first, out.size - filled)
        number, base, stream = play.number, play.base, play.stream
        for i in range(count):
            row, request = rows[first + i], out[filled + i]
            request.kind = row.kind
            request.unit = row.unit + base
            request.size = row.fixed + row.per * number
            request.stream = stream
        filled += count
        done += count
        if first + count == play.end:
            p, done = p + 1, 0
    at[0], at[1] = p, done
    return filled


def play(section: Any, count: int = 1) -> Any:
    """`count` plays of one section, the rest zero."""
    made = table(count, PLAY)
    made["first"], made["end"] = section
    return made
