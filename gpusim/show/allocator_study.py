"""The figures of a fragmentation study: what each candidate holds over time, the heap at the moment that decides, its holes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from gpusim.base.units import show_bytes
from gpusim.results.heap_over_time import closed
from gpusim.results.result import FINISHED, OOM, Result
from gpusim.show import heap_states, held_over_time
from gpusim.show.figure import address_map
from gpusim.show.style import ALARM, HEIGHT, INK, SOFT, canvas, empty, headline, looks, styled
from gpusim.show.view import scale
from gpusim.studies.fragmentation.diagnosis import CAUSES
from gpusim.studies.fragmentation.heap import History
from gpusim.studies.fragmentation.recorded import NAME
from gpusim.studies.fragmentation.study import FragmentationStudy
from gpusim.trace.trace import I64

UNKNOWN = "unknown"  # where a recording does not say what its tensors are
LINE = 64        # characters of a legend's line that are left to names
PATCH = 6        # of them before each name
OTHERS = "others"
WIDEST = 64      # segments of the map of one moment, one line each


@styled
def heap(found: FragmentationStudy) -> Figure:
    """The segments at the moment that decides, one bar each: blocks in use, and what is free between them."""
    d, figure = found.diagnosis, canvas(height=HEIGHT * 1.15)
    held, live = d.heap.segments, d.heap.blocks
    if not len(held):
        empty(figure, "Nothing is held.")
        return figure
    free = held.bytes - d.heap.live_in()
    order = np.argsort(-held.bytes, kind="stable")
    wide = np.sort(np.argsort(-free[order], kind="stable")[:WIDEST])  # those with most free bytes, largest first
    order = order[wide]
    row = np.full(len(held), -1)
    row[order] = np.arange(len(order))
    panel = figure.add_subplot()
    panel.grid(visible=False)
    per_byte, unit = scale("B", int(held.bytes[order].max()))
    zero = np.zeros(len(order))
    panel.add_collection(
        PolyCollection(_bars(row[order], zero, held.bytes[order] / per_byte), facecolors=address_map.FREE, gid="free")
    )
    mine = row[d.heap.home] >= 0
    start = (live.addr - held.addr[d.heap.home])[mine] / per_byte
    site = found.program.site[live.unit[mine]]
    names = [found.program.sites[s] for s in np.unique(site)]
    look = looks(names)
    colour = [look[found.program.sites[s]].colour for s in site]
    panel.add_collection(
        PolyCollection(
            _bars(row[d.heap.home[mine]], start, start + live.bytes[mine] / per_byte), facecolors=colour, gid="blocks",
            edgecolors="white", linewidths=0.3 if mine.sum() < 400 else 0.0,
        )
    )  # fmt: skip
    panel.set_xlim(0, float(held.bytes[order].max()) / per_byte * 1.01)
    panel.set_ylim(len(order) - 0.4, -0.6)
    panel.set_yticks([])
    panel.set_xlabel(f"inside the segment [{unit}]")
    panel.set_ylabel("segments, largest first")
    largest = sorted(names, key=lambda n: -int(live.bytes[mine][np.array(colour) == look[n].colour].sum()))[:8]
    told = "in use" if names == [UNKNOWN] else None
    strip = [Patch(facecolor=look[n].colour, label=told or n) for n in largest]
    strip.append(Patch(facecolor=address_map.FREE, label="free"))
    panel.legend(handles=strip, loc="upper left", bbox_to_anchor=(1.01, 1.03), borderaxespad=0)
    note = f"{len(order)} of {len(held)} segments, those with most free bytes." if len(order) < len(held) else ""
    headline(figure, "Where does the memory sit that is not in use?", _why(found), note)
    return figure


def _bars(row: I64, left: Any, right: Any) -> Any:
    """Corners (N, 4, 2) of horizontal bars."""
    low, high = row - 0.42, row + 0.42
    return np.stack([np.stack(c, -1) for c in ((left, low), (right, low), (right, high), (left, high))], 1)


def _why(found: FragmentationStudy) -> str:
    d = found.diagnosis
    if not d.main:
        return "All that is held is in use."
    return f"{show_bytes(d.idle)} of {show_bytes(d.held)} are not in use at request {d.request:,}; most: {CAUSES[d.main]}."


@styled
def free_blocks(found: FragmentationStudy) -> Figure:
    """Histogram of free blocks by size at the moment that decides: bytes in each class, and the request beside them."""
    d, figure = found.diagnosis, canvas()
    if not len(d.heap.hole_bytes):
        empty(figure, "Nothing is free.")
        return figure
    panel = figure.add_subplot()
    octave = np.floor(np.log2(d.heap.hole_bytes)).astype(int)
    first, last = int(octave.min()), int(max(octave.max(), np.log2(max(d.size, 1))))
    total = np.bincount(octave - first, d.heap.hole_bytes, last - first + 1)
    count = np.bincount(octave - first, minlength=last - first + 1)
    per_byte, unit = scale("B", int(total.max()))
    panel.bar(np.arange(len(total)), total / per_byte, 0.86, color=SOFT, gid="free bytes")
    for x, (height, n) in enumerate(zip(total / per_byte, count, strict=True)):
        if n:
            panel.annotate(f"{n}", (x, height), (0, 2), textcoords="offset points", ha="center", fontsize=8, color=INK)
    if d.size:
        x = np.log2(d.size) - first - 0.5
        panel.axvline(x, color=ALARM, lw=1.3, gid="request")
        side, way = ("left", 4) if x < len(total) / 2 else ("right", -4)
        words = panel.annotate(f"request: {show_bytes(d.size)}", (x, 1), (way, -4), ha=side, va="top", color=ALARM,
                               xycoords=panel.get_xaxis_transform(), textcoords="offset points", fontsize=8.5)  # fmt: skip
        words.set_in_layout(False)
    panel.set_ylim(0, float(total.max()) / per_byte * 1.17)  # above the bars: their numbers, and the request
    panel.set_xticks(np.arange(len(total)) - 0.5, [show_bytes(2**k) for k in range(first, last + 1)], rotation=45, ha="right")
    panel.set_ylabel(f"free bytes [{unit}]")
    panel.set_xlabel("size of the free block (the number on a bar counts them)")
    answer = (
        f"{show_bytes(int(d.heap.hole_bytes.sum()))} are free in {len(d.heap.hole_bytes):,} pieces, the largest has "
        f"{show_bytes(d.largest_hole)}."
    )
    headline(figure, "How large are the free pieces?", answer)
    return figure


@styled
def heap_over_time(found: FragmentationStudy) -> Figure:
    """The address map of what is now: segments as bands, blocks coloured by where they come from."""
    now = found.now
    log = closed(now.log)
    if now.name == NAME:  # what lived before the recording is there from its start
        log["t"][log["t"] < found.program.before] = 0
    end = History(now.log, found.program.total).blocks.end.max(initial=1)
    spec = {"trace": found.program.name, "place": now.name, "clock": address_map.REQUEST}
    metrics: dict[str, int | float] = {"makespan_ns": int(end), "reserved_peak_bytes": now.held_peak}
    result = Result(spec, FINISHED if now.fits else OOM, metrics, log=log)
    return address_map.draw([result], "How does the heap look over time?", {found.program.name: _few_sites(found)})


def _few_sites(found: FragmentationStudy) -> list[str]:
    """Where each unit comes from, as many sites as a line has room for: those of the largest areas; the rest are others."""
    program = found.program
    lives = program.buffers()
    total = np.bincount(program.site, program.size * (lives.end - lives.first), len(program.sites))
    order = [s for s in np.argsort(-total, kind="stable").tolist() if total[s]]
    wide = np.cumsum([len(program.sites[s]) + PATCH for s in order])
    room = LINE if not len(wide) or wide[-1] <= LINE else LINE - len(OTHERS) - PATCH
    named = {s for s, end in zip(order, wide.tolist(), strict=True) if end <= room}
    return [program.sites[s] if s in named else OTHERS for s in program.site.tolist()]


FIGURES: dict[str, Callable[[FragmentationStudy], Figure]] = {
    "held_over_time": held_over_time.draw,
    "heap": heap,
    "free_blocks": free_blocks,
    "heap_states": heap_states.draw,
    "heap_over_time": heap_over_time,
}
