"""What the driver does at a word of Python's, while the clock stands: for oracles ahead of a run, and when a process ends.

Each is an order through the door of the kernels (`door.py`).
"""

from __future__ import annotations

import numpy as np

from gpusim.base.compiled import Placed
from gpusim.engine.pages.door import door
from gpusim.engine.pages.driver_tables import DRIVER, DriverState
from gpusim.engine.pages.launches import Paged
from gpusim.engine.pages.paging import ASIDE, DISCARDS, MOVES, ORDER, RELEASES, RUNS_ALONE, TOUCHES, Order


def host_touch(M: DriverState, first: int, outer: int, write: bool) -> int:
    """The CPU reads or writes all bytes of the pages at [first, outer); DONE, or why not."""
    return _order(M, TOUCHES, first, outer, write)


def migrate(M: DriverState, first: int, outer: int, to: int) -> int:
    """cudaMemPrefetchAsync, and waiting for it; DONE, or why not."""
    return _order(M, MOVES, first, outer, to)


def advise(M: DriverState, first: int, outer: int, hint: int, processor: int) -> None:
    """cudaMemAdvise of an allocation; hint: its number among `steps.ADVICE`."""
    _order(M, -1 - hint, first, outer, processor)


def discard(M: DriverState, first: int, outer: int) -> None:
    """cuMemDiscardBatchAsync."""
    _order(M, DISCARDS, first, outer)


def release(M: DriverState, first: int, outer: int) -> None:
    """An allocation is freed."""
    _order(M, RELEASES, first, outer)


def run_alone(paged: Paged, operator: int) -> int:
    """The operator from now to its end, with nothing beside it; DONE, or why not."""
    return _carried_out(paged.memory.address, paged.placed.address, RUNS_ALONE, 0, 0, operator)


def _order(M: DriverState, what: int, first: int, outer: int, which: int = 0) -> int:
    memory = Placed(M, DRIVER)
    return _carried_out(memory.address, 0, what, first, outer, which)


def _carried_out(*words: int) -> int:
    order = Placed(Order(np.array(words, np.int64)), ORDER)
    return int(door(order.address, ASIDE, 0, 0))
