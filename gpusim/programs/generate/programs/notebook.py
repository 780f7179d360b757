"""Interactive work: cells run now and then and bind their results to names, which keeps what they were bound to before alive
until the new result is there."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np

from gpusim.base.tables import table
from gpusim.base.units import parse_bytes
from gpusim.programs.generate.schedule import PLAY, RequestSchedule
from gpusim.programs.generate.tape import AffineSize, RequestTape, Section
from gpusim.trace.trace import I64

CHUNK = 1 << 12  # cells
SMALLEST = 512   # bytes
SECTIONS = OPEN, AGAIN, CLOSE, BIND, REBIND, OTHER, DROP, DROP_OTHER = range(8)


def notebook(
    hours: float = 8.0, cells_per_hour: float = 120.0, operators: float = 8.0, variables: int = 24,
    largest: str = "1 GiB", ends: bool = False, seed: int = 0,
) -> RequestSchedule:  # fmt: skip
    """A notebook: each cell computes a tensor through a chain of temporaries and binds it to one of a few names.

    The old value of the name dies when the new one is there.

    hours           hours of work
    cells_per_hour  cells run in an hour, evenly
    operators       temporaries of a cell, on average; each is made before the one that it is made of dies
    variables       names; a cell takes one of them at random
    largest         size of the largest tensor; sizes are log-uniform from 512 B on
    ends            1: gives everything back when its time is over
    seed            of names, sizes and chains
    """
    rows, sections = tape()
    cells, top = max(1, int(hours * cells_per_hour)), max(parse_bytes(largest), SMALLEST)

    def plays() -> Iterator[Any]:
        rng = np.random.Generator(np.random.PCG64(seed))
        bound = np.zeros(variables, np.int64)
        for at in range(0, cells, CHUNK):
            count = min(CHUNK, cells - at)
            name = rng.integers(0, variables, count)
            size = (SMALLEST * np.exp(rng.uniform(0, np.log(top / SMALLEST), count))).astype(np.int64)
            again = rng.geometric(2 / max(operators, 2.0), count) - 1
            made = _cells(sections, name, size, again, bound)
            made["time"] = np.repeat((np.arange(at, at + count) * (3_600_000 / cells_per_hour)).astype(np.int64), 3 + again)
            yield made
        if ends:
            yield _end(sections, bound, round(hours * 3_600_000))

    return RequestSchedule("notebook", rows, plays, 2 + 2 * variables)


@cache
def tape() -> tuple[Any, I64]:
    """(rows, sections): temporaries are units 0 and 1; a name has units 0 and 1 of its own, which take turns."""
    t, size = RequestTape(), AffineSize(0, 1)
    cuts: list[Section] = []

    def cut(*frees: int) -> None:
        t.free(*frees)
        cuts.append(t.cut())

    one = t.new(size)
    other = t.new(size)
    cut(one)  # OPEN: the chain's first temporary is gone
    one = t.new(size)
    t.free(other)
    other = t.new(size)
    cut(one)  # AGAIN
    cut(other)  # CLOSE
    one = t.new(size)
    cut()  # BIND
    other = t.new(size)
    cut(one)  # REBIND
    one = t.new(size)
    cut(other)  # OTHER: back to the first unit
    cut(one)  # DROP
    one, other = t.new(size), t.new(size)
    t.free(one)
    t.cut()
    cut(other)  # DROP_OTHER
    return t.rows(), np.array(cuts)


def _cells(sections: I64, name: I64, size: I64, again: I64, bound: I64) -> Any:
    """Plays of some cells: open, again so many times, bind, close.  bound: how often each name was bound; goes on."""
    start = np.cumsum(3 + again) - (3 + again)
    which = np.full(int((3 + again).sum()), AGAIN)
    which[start], which[start + again + 2] = OPEN, CLOSE
    order = np.argsort(name, kind="stable")
    ordered = name[order]
    first = np.searchsorted(ordered, ordered)
    times = np.empty(len(name), np.int64)
    times[order] = bound[ordered] + np.arange(len(name)) - first
    bound += np.bincount(name, minlength=len(bound))
    binds = start + again + 1
    which[binds] = np.where(times == 0, BIND, np.where(times % 2 == 1, REBIND, OTHER))
    made = table(len(which), PLAY)
    made["first"], made["end"] = sections[which].T
    made["number"] = np.repeat(size, 3 + again)
    made["base"][binds] = 2 + 2 * name
    return made


def _end(sections: I64, bound: I64, time: int) -> Any:
    name = np.flatnonzero(bound)
    made = table(len(name), PLAY)
    made["time"], made["base"] = time, 2 + 2 * name
    made["first"], made["end"] = sections[np.where(bound[name] % 2 == 1, DROP, DROP_OTHER)].T
    return made
