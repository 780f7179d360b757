"""Where are the holes?  The addresses of the heap over time, coloured by what the memory is good for."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from gpusim.base.text import join
from gpusim.base.units import show_bytes
from gpusim.results.heap_over_time import closed
from gpusim.show.style import FAINT, HEIGHT, INK, PINK, SKY, VERMILION, WINE, canvas, empty, headline, styled
from gpusim.show.view import scale
from gpusim.studies.fragmentation.heap import Heap, History
from gpusim.studies.fragmentation.recorded import NAME
from gpusim.studies.fragmentation.study import FragmentationStudy
from gpusim.trace.trace import I64

# From what is in use to what nothing pins, in the order of the stack of bytes below the map.
STATES = {
    "in use": SKY,
    "rounding": WINE,
    "awaiting free": PINK,  # the program is done with it, another stream is not
    "free beside blocks in use": VERMILION,
    "free, whole segment": FAINT,
}
IN_USE, ROUNDING, AWAITING, BESIDE, WHOLE = range(len(STATES))
WIDE, HIGH = 480, 640  # pixels of the map
BAND = 1 / 50           # of all addresses: borders of smaller segments would cover what they enclose

Ranges = tuple[I64, I64]  # starts and ends, in order, without overlap


@styled
def draw(found: FragmentationStudy) -> Figure:
    """The map of what is now, and the bytes that are held and not in use below it."""
    figure = canvas(height=HEIGHT * 1.25)
    program, now = found.program, found.now
    history = History(closed(now.log), program.total)
    if not len(history.segments):
        empty(figure, "Nothing is held.")
        return figure
    first = program.before if now.name == NAME else 0  # before that the recording knows only what was there
    returned = np.full(len(program.size), program.total)
    returned[list(program.returned)] = list(program.returned.values())
    times = np.unique(np.linspace(first, max(first, program.total - 1), WIDE).astype(np.int64))
    top = int((history.segments.addr + history.segments.bytes).max())
    edges = np.linspace(0, top, HIGH + 1)
    paint, ink = np.ones((HIGH, len(times), 3)), np.array([to_rgb(colour) for colour in STATES.values()])
    total = np.zeros((len(STATES), len(times)))
    for x, t in enumerate(times.tolist()):
        ranges = states(history.at(t), program.size, returned, t)
        covered = np.stack([_covered(r, edges) for r in ranges]) / np.diff(edges)
        paint[:, x] = 1 - covered.T @ (1 - ink)  # a pixel of several states has their mean colour, white is not held
        total[:, x] = [(ends - starts).sum() for starts, ends in ranges]
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
    per_byte, unit = scale("B", top)
    above.imshow(
        np.clip(paint, 0, 1), origin="lower", aspect="auto", extent=(first, program.total, 0, top / per_byte),
        interpolation="nearest", gid="states",
    )  # fmt: skip
    above.grid(visible=False)
    above.tick_params(labelbottom=False)
    above.set_ylabel(f"address [{unit}]")
    _bands(above, history, program.total, top, per_byte)
    idle = total[ROUNDING:]
    per_byte, unit = scale("B", idle.sum(0).max())
    below.stackplot(times, idle / per_byte, colors=list(STATES.values())[ROUNDING:], step="post", lw=0)
    below.set_ylim(0, idle.sum(0).max() / per_byte * 1.05 or 1)
    below.set_xlim(first, max(program.total, first + 1))
    below.set_ylabel(f"not in use [{unit}]")
    below.set_xlabel("request")
    moment = found.diagnosis.request
    for panel in (above, below):
        panel.axvline(moment, color=INK, lw=0.9, ls=":", gid="moment")
    legend = [Patch(facecolor=c, label=n) for (n, c), size in zip(STATES.items(), total, strict=True) if size.any()]
    then = [int((ends - starts).sum()) for starts, ends in states(history.at(moment), program.size, returned, moment)]
    headline(figure, "Where are the holes?", _answer(moment, then), "", legend)
    return figure


def states(heap: Heap, requested: I64, returned: I64, request: int) -> list[Ranges]:
    """The ranges of addresses in each of STATES, after this request.

    requested, returned  per unit: its bytes, and the request from which on the program was done with it
    """
    block = heap.blocks
    ends = block.addr + np.minimum(requested[block.unit], block.bytes)
    away = returned[block.unit] < request
    whole = (heap.live_in() == 0)[heap.of]
    hole_end = heap.hole_addr + heap.hole_bytes
    return [
        (block.addr[~away], ends[~away]),
        (ends, block.addr + block.bytes),
        (block.addr[away], ends[away]),
        (heap.hole_addr[~whole], hole_end[~whole]),
        (heap.hole_addr[whole], hole_end[whole]),
    ]


def _covered(ranges: Ranges, edges: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Bytes of the ranges between each two edges."""
    starts, ends = ranges
    if not len(starts):
        return np.zeros(len(edges) - 1)
    sums = np.concatenate([[0], np.cumsum(ends - starts)])
    at = np.stack([starts, ends], 1).ravel()
    return np.diff(np.interp(edges, at, np.stack([sums[:-1], sums[1:]], 1).ravel()))


def _bands(panel: Axes, history: History, end: int, top: int, per_byte: float) -> None:
    """A line below each segment that is high enough to be seen as a band."""
    held = history.segments
    wide = held.pick(np.flatnonzero(held.bytes >= BAND * top))
    panel.hlines(wide.addr / per_byte, wide.start, np.minimum(wide.end, end), color="white", lw=0.7, gid="segments")


def _answer(moment: int, size: Sequence[int]) -> str:
    """What is free at the moment that decides, in words."""
    held, free = sum(size), {"beside blocks in use (orange)": size[BESIDE], "in whole segments (grey)": size[WHOLE]}
    if not size[BESIDE] + size[WHOLE]:
        return f"At request {moment:,} (dotted) no block is free."
    parts = [f"{show_bytes(n)} {where}" for where, n in sorted(free.items(), key=lambda item: -item[1]) if n]
    return f"At request {moment:,} (dotted) {join(parts)} are free, of {show_bytes(held)} held."
