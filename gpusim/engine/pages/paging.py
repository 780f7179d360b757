"""The tables of kernels under managed memory: what each touches, how far each that runs is, and the driver that serves them.

    operator ──▶ launches, one after the other ──▶ accesses
    stream   ──▶ warps (what the clock knows), run (how far it is), front (its warps, by address)

A GPU has one driver, a server: it serves the faults of one kernel at a time, in the order in which they stopped.  Processes
that have the GPU together have tables of their own, and this server.
"""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

from gpusim.base.compiled import by_pointer, tables_at
from gpusim.base.tables import f8, i8, record, signature
from gpusim.engine.pages.driver_tables import DRIVER
from gpusim.engine.pages.frontend import FRONT_END
from gpusim.engine.state import LEGS, PAGER, TRANSFER, WARPS
from gpusim.programs.managed.pattern import ACCESS, SHAPE

driver_at, front_at = tables_at(DRIVER), tables_at(FRONT_END)

LAUNCH = record(
    [("first", i8), ("accesses", i8),    # rows of `accesses`
     ("warps", i8), ("ctas", i8), ("grid_x", i8), ("threads", i8), ("steps", i8),
     ("slots", i8),                      # of warps that a uTLB serves at once
     ("sweeps", i8),                     # see sweep.py
     ("identity", i8)]                   # equal for kernels of one name over the same arrays
)  # fmt: skip
# What a kernel does: its warps go on; all stand until faults are served; its next launch begins when the warps have stopped, or
# when what the program brings before it is there; no warp is left; all look again what has become of their pages.
RUNS, WAITS, BEGINS, BRINGS, ENDED, PAUSES = range(6)
PROGRESS = record(
    [("state", i8), ("launch", i8), ("end", i8), ("since", f8),  # launches of its operator; when it stopped, ns
     ("asked", f8), ("moves", i8),       # ns: since when it waits for what the program brings; whether pages are among that
     ("at", i8)]                         # of a touch by the CPU, the block that is next
)  # fmt: skip
# HELD_UP: another GPU has the next block; HALF: one block of a batch is served, and the warps go on before the next;
# CALLED: the faults of another process are next, which is not told yet.
AT_REST, SERVES, HELD_UP, HALF, CALLED = range(5)
SERVER = record(
    [("phase", i8), ("stream", i8), ("gpu", i8),
     ("process", i8),                    # whose stream it is, where several have one GPU
     ("at", f8),                         # ns: when it goes on
     ("active", i8),                     # kernels that have not ended
     ("in_pass", i8), ("with_throttled", i8), ("nap", i8),
     # Does the next flush leave what came meanwhile; ns: first report that may be in the batch, from it to the fetch.
     ("kept", i8), ("looked", f8), ("since", f8),
     ("fetched", i8), ("unique", i8), ("next", i8), ("noted", i8), ("throttled", i8),  # of the batch
     ("begin", f8), ("engaged", f8),
     ("over", f8),                       # ns: its work and its copies are done
     ("copied", f8),                     # when the copies are, alone on their link
     ("ahead", (f8, LEGS)), ("ahead_ns", (f8, LEGS))]  # what has come or left ahead of need, and has yet to flow
)  # fmt: skip
# Hints are -1, -2, ... in the order of `steps.ADVICE`, of the processor `to`.
RELEASE, DISCARD, MIGRATE, TOUCH_READ, TOUCH_WRITE = range(5)
# What the program does before a launch, on its stream, with the pages [first, outer).
ACT = record([("launch", i8), ("kind", i8), ("first", i8), ("outer", i8), ("to", i8)])


@by_pointer
class PagedKernels(NamedTuple):
    """What runs on one GPU under managed memory; O operators."""

    pager: Annotated[Any, PAGER, 1]
    warps: Annotated[Any, WARPS, "streams"]
    transfers: Annotated[Any, TRANSFER, "transfers"]
    runs: Annotated[Any, PROGRESS, "streams"]
    fronts: Annotated[Any, i8, "streams"]       # addresses, 0 of a stream whose kernels touch nothing
    server: Annotated[Any, SERVER, 1]           # which the processes on one GPU share
    others: Annotated[Any, i8, "processes"]     # addresses of the PagedKernels of all of these, itself among them
    lists: Annotated[Any, i8, "O + 1"]          # where the launches of each operator begin
    launches: Annotated[Any, LAUNCH, "launches"]
    shapes: Annotated[Any, SHAPE, "launches"]
    accesses: Annotated[Any, ACCESS, "accesses"]
    indices: Annotated[Any, i8, "entries"]      # of gathers
    acts: Annotated[Any, ACT, "acts"]
    sent: Annotated[Any, i8, "O"]               # 1 + the act that an operator is which is no kernel, 0: it is none
    driver: Annotated[Any, i8, 1]               # address of the DriverState, which GPUs share
    # What each operator counted, of all processors: COUNT as whole numbers, as floats, and which column is a float.
    counts: Annotated[Any, i8, "P", "columns"]
    counts_ns: Annotated[Any, f8, "P", "columns"]
    counted: Annotated[Any, i8, "O", "P", "columns"]
    counted_ns: Annotated[Any, f8, "O", "P", "columns"]
    is_ns: Annotated[Any, i8, "columns"]


PAGING = signature(PagedKernels)
paging_at = tables_at(PAGING)

# What Python orders of the driver through the door of the kernels, which is told ASIDE; a hint is below 0, as an act is.
ASIDE = -1
TOUCHES, MOVES, DISCARDS, RELEASES, RUNS_ALONE = range(5)


@by_pointer
class Order(NamedTuple):
    """Addresses of the DriverState and of the PagedKernels, what, pages [first, outer), and a processor or an operator."""

    words: Annotated[Any, i8, 6]


ORDER = signature(Order)
order_at = tables_at(ORDER)
