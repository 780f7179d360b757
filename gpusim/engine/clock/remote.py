"""Kernels that read and write below the device: bytes flow while the kernel runs, and it ends with the last of them."""

from __future__ import annotations

from gpusim.base.compiled import kernel, outlined
from gpusim.engine.clock import event_heap as heap
from gpusim.engine.clock import links
from gpusim.engine.state import E_READ, E_WRITE, Instructions, Island


@outlined
def begin(isl: Island, prog: Instructions, row: int) -> None:
    """The kernel starts: its reads and writes flow as soon as the first bytes can be there."""
    c, n, a = isl.clock[0], isl.counts[0], isl.activities[row]
    into, out = prog.remote[0, a.arg], prog.remote[1, a.arg]
    ways = isl.ways.size
    if into > 0:
        heap.push(isl, c.now + isl.ways[ways - 2].latency, E_READ, row)
        a.parts += 1
        n.remote_read += into
    if out > 0:
        heap.push(isl, c.now + isl.ways[ways - 1].latency, E_WRITE, row)
        a.parts += 1
        n.remote_written += out


@outlined
def flow(isl: Island, prog: Instructions, row: int, direction: int) -> None:
    """The latency of its reads (direction 0) or writes (1) is over."""
    way = isl.ways.size - 2 + direction
    links.begin(isl, row, way, float(prog.remote[direction, isl.activities[row].arg]), isl.ways[way].rate)


@kernel
def is_last(isl: Island, row: int) -> bool:
    """One part of the activity is over: True when no other is left."""
    a = isl.activities[row]
    if a.parts > 0:
        a.parts -= 1
        return False
    return True
