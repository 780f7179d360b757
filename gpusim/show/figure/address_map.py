"""Where do the holes come from?  Addresses of the heap over time: every block, every segment, every hole."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import matplotlib
import numpy as np
import numpy.typing as npt
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

from gpusim.base.text import join
from gpusim.base.units import show_bytes, show_time
from gpusim.results.heap_over_time import DEVICE, Boxes, Holes
from gpusim.results.log import OOM
from gpusim.results.result import Result
from gpusim.show.groups import starred
from gpusim.show.panels import entitle, grid, shape
from gpusim.show.style import (
    ALARM,
    BLUE,
    GREEN,
    GREY,
    HEIGHT,
    INDIGO,
    INK,
    OLIVE,
    ORANGE,
    PINK,
    SKY,
    SOFT,
    WINE,
    canvas,
    empty,
    headline,
    styled,
)  # fmt: skip
from gpusim.show.values.heap import CATEGORIES, end, heap, held
from gpusim.show.view import ending, pick, run_name, scale, varying

MOST = 4
REQUEST = "request"  # of a run's spec under `clock`: its log counts the allocator's requests, not nanoseconds
VECTOR = 20_000  # from so many blocks on they are drawn as a picture of pixels
FREE = "#DDE0E6"
_OF = (BLUE, SKY, OLIVE, INDIGO, ORANGE, ORANGE, GREEN, GREEN, WINE, PINK, GREY)
_CATEGORY = dict(zip(CATEGORIES, _OF, strict=True))
_SPARE = (PINK, WINE, SKY, OLIVE, GREEN, ORANGE, INDIGO, BLUE)

RGBA = tuple[float, float, float, float]


@styled
def draw(results: Sequence[Result], question: str = "", categories: Mapping[str, Sequence[str]] | None = None) -> Figure:
    """One map per run that kept its event log; a single run also shows free bytes against the largest hole.

    categories  trace name -> category of each tensor, to colour blocks by what they hold instead of by their size
    """
    logged = [r for r in results if r.log is not None and len(r.log)]
    if not logged:
        figure = canvas()
        empty(figure, "No run kept its event log.")
        return figure
    held, _ = pick(logged, 3 * MOST)  # one memory size and machine, while there are many
    shown = _extremes(held)
    note = (
        f"{len(shown)} of {len(logged)} runs with an event log are shown: those that hold least and most."
        if len(shown) < len(logged)
        else ""
    )
    keys = varying(shown)
    figure = canvas(height=HEIGHT * 1.15) if len(shown) == 1 else canvas(shape(len(shown))[0])
    if len(shown) == 1:
        axes, strip = _with_strip(figure)
    else:
        axes, strip = grid(figure, len(shown), sharey=True), None
    heaps = [heap(run) for run in shown]
    top = max((int((box.addr + box.bytes).max()) for b, s, _ in heaps for box in (b, s) if len(box)), default=0)
    per_byte, byte_unit = scale("B", top)
    per_time, time_unit = scale("ns", max(end(r) for r in shown))
    time_label, when = f"host time [{time_unit}]", show_time
    if any(r.spec.get("clock") == REQUEST for r in shown):
        per_time, time_label, when = 1.0, "request", "request {:,.0f}".format
    legend: dict[str, Artist] = {}
    for panel, run, (block, segment, hole) in zip(axes, shown, heaps, strict=True):
        legend |= _map(panel, run, block, segment, per_time, per_byte, categories)
        entitle(panel, starred(run_name(run, keys), run.oracle) if len(shown) > 1 else "", len(shown))
        panel.set_xlim(0, end(run) / per_time)
        _worst(panel, run, hole, per_time, per_byte)
        if strip is not None:
            _free(strip, hole, per_time, per_byte, byte_unit)
        if any(not r.finished for r in shown):
            _failure(panel, run, per_time)
    axes[0].set_ylim(0, top / per_byte * 1.02 or 1)
    _, columns = shape(len(axes))
    for i, panel in enumerate(axes):
        panel.set_ylabel(f"address [{byte_unit}]" if i % columns == 0 else "")
        panel.set_xlabel(time_label if i + columns >= len(axes) and strip is None else "")
    if strip is not None:
        strip.set_xlabel(time_label)
    legend["hole"] = Patch(facecolor=FREE, label="free")
    if strip is not None:
        legend["lost"] = Patch(facecolor=ALARM, alpha=0.22, label="free, but outside the largest hole")
    headline(figure, question or "Where do the holes come from?", _answer(shown, keys, heaps, when), note, [*legend.values()])
    return figure


def _extremes(logged: list[Result]) -> list[Result]:
    """At most MOST runs: those that hold least memory and those that hold most."""
    if len(logged) <= MOST:
        return logged
    order = sorted(logged, key=lambda r: r.metrics.get("reserved_peak_bytes", 0))
    chosen = {id(r) for r in (*order[: MOST // 2], *order[-(MOST // 2) :])}
    return [r for r in logged if id(r) in chosen]


def _with_strip(figure: Figure) -> tuple[list[Axes], Axes]:
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(4, 1))
    above.tick_params(labelbottom=False)
    return [above], below


def _map(
    panel: Axes, run: Result, block: Boxes, segment: Boxes, per_time: float, per_byte: float,
    categories: Mapping[str, Sequence[str]] | None,
) -> dict[str, Artist]:  # fmt: skip
    """Draws segments and blocks; returns the legend's handles by name."""
    panel.grid(visible=False)
    panel.add_collection(
        PolyCollection(_corners(segment, per_time, per_byte), facecolors=FREE, edgecolors="none", gid="segments")
    )
    group, names, known = held(run, block, categories)
    paint = colours(names, known)
    if len(block) > VECTOR:
        _picture(panel, block, group, paint, per_time, per_byte)
    else:
        # A white edge sets tall blocks apart; of a thin one it would leave nothing.
        tall = block.bytes > int((block.addr + block.bytes).max(initial=0)) / 120
        panel.add_collection(
            PolyCollection(
                _corners(block, per_time, per_byte), facecolors=[paint[g] for g in group], gid="blocks",
                edgecolors="white", linewidths=np.where(tall, 0.4, 0.0), rasterized=len(block) > 3000,
            )
        )  # fmt: skip
    here = sorted(set(group.tolist()))
    return {names[g]: Patch(facecolor=paint[g], label=names[g]) for g in here}


def _corners(box: Boxes, per_time: float, per_byte: float) -> Any:
    """Corners of each box as (N, 4, 2): time, address."""
    left, right = box.start / per_time, box.end / per_time
    low, high = box.addr / per_byte, (box.addr + box.bytes) / per_byte
    return np.stack([np.stack(c, -1) for c in ((left, low), (right, low), (right, high), (left, high))], 1)


def colours(names: Sequence[str], categories: bool) -> list[RGBA]:
    """Of groups of blocks: the same for a category in every figure, darker for larger sizes."""
    if not categories:
        return [tuple(c) for c in matplotlib.colormaps["viridis_r"](np.linspace(0.12, 0.92, len(names)))]
    spare = iter(_SPARE * (1 + len(names) // len(_SPARE)))
    return [to_rgba(_CATEGORY[c] if c in _CATEGORY else next(spare)) for c in names]


def _picture(
    panel: Axes, block: Boxes, group: npt.NDArray[np.int64], colours: Sequence[RGBA], per_time: float, per_byte: float
) -> None:
    """Blocks as pixels: each has the colour of the group with most blocks in it; no block is less than a pixel."""
    wide, high = 1600, 900
    last, top = max(int(block.end.max()), 1), max(int((block.addr + block.bytes).max()), 1)
    x0, y0 = (block.start * (wide / last)).astype(int), (block.addr * (high / top)).astype(int)
    x0, y0 = np.minimum(x0, wide - 1), np.minimum(y0, high - 1)
    x1 = np.clip(np.ceil(block.end * (wide / last)).astype(int), x0 + 1, wide)
    y1 = np.clip(np.ceil((block.addr + block.bytes) * (high / top)).astype(int), y0 + 1, high)
    count = np.zeros((len(colours), high, wide), np.int32)
    for g in range(len(colours)):
        mine = group == g
        corner = np.zeros((high + 1, wide + 1), np.int32)  # +1 and -1 at corners: running sums fill the boxes
        for y, x, sign in ((y0, x0, 1), (y0, x1, -1), (y1, x0, -1), (y1, x1, 1)):
            np.add.at(corner, (y[mine], x[mine]), sign)
        count[g] = corner.cumsum(0).cumsum(1)[:-1, :-1]
    image = np.array(colours)[count.argmax(0)]
    image[..., 3] = count.any(0)
    panel.imshow(
        image, origin="lower", aspect="auto", extent=(0, last / per_time, 0, top / per_byte), interpolation="nearest",
        gid="blocks", zorder=2,
    )  # fmt: skip


def _worst(panel: Axes, run: Result, hole: Holes, per_time: float, per_byte: float) -> None:
    """Marks the moment at which most free bytes lie outside the largest hole, and that hole."""
    i = hole.worst
    if hole.free[i] == hole.largest[i]:
        return
    time, low, size = hole.time[i] / per_time, hole.largest_addr[i] / per_byte, hole.largest[i] / per_byte
    panel.axvline(time, color=INK, lw=0.9, ls=":", gid="worst")
    width = 0.012 * end(run) / per_time
    frame = Rectangle((time - width / 2, low), width, size, fill=False, ec=ALARM, lw=1.4, gid="largest hole", zorder=3)
    panel.add_patch(frame)


def _answer(
    shown: Sequence[Result], keys: Sequence[str], heaps: Sequence[tuple[Boxes, Boxes, Holes]], when: Callable[[float], str]
) -> str:
    """How much free memory is in pieces at the worst moment of each run."""
    if len(shown) == 1:
        hole = heaps[0][2]
        i = hole.worst
        if hole.free[i] == hole.largest[i]:
            return "The free memory always is in one piece."
        free, largest = show_bytes(hole.free[i]), show_bytes(hole.largest[i])
        return f"At {when(hole.time[i])}, {free} are free, but the largest hole (red frame) has {largest}."
    lost = [
        (int(hole.free[hole.worst] - hole.largest[hole.worst]), run_name(run, keys))
        for run, (_, _, hole) in zip(shown, heaps, strict=True)
    ]
    most = join([f"{name} {show_bytes(size)}" for size, name in sorted(lost)])
    return f"Free memory outside the largest hole (red frame), at its worst: {most}."


def _free(strip: Axes, hole: Holes, per_time: float, per_byte: float, unit: str) -> None:
    time, free, largest = hole.time / per_time, hole.free / per_byte, hole.largest / per_byte
    strip.fill_between(time, largest, free, color=ALARM, alpha=0.22, lw=0, gid="in pieces")
    strip.fill_between(time, 0, largest, color=FREE, lw=0, gid="in one piece")
    strip.plot(time, free, color=SOFT, lw=1.2)
    strip.set_ylabel(f"free [{unit}]")
    strip.set_ylim(0, max(float(free.max(initial=0)), 1e-9) * 1.15)
    strip.locator_params(axis="y", nbins=3)


def _failure(panel: Axes, run: Result, per_time: float) -> None:
    assert run.log is not None
    for row in run.log[(run.log["kind"] == OOM) & (run.log["b"] == DEVICE)][:1]:
        panel.axvline(row["t"] / per_time, color=ALARM, lw=1.4, gid=f"failed:{ending(run)}")
        words = panel.annotate(
            f"{ending(run)}: {show_bytes(int(row['bytes']))} wanted", (row["t"] / per_time, 1), (-4, -4), ha="right",
            va="top", xycoords=panel.get_xaxis_transform(), textcoords="offset points", fontsize=8.5, color=ALARM,
            bbox={"facecolor": "white", "alpha": 0.85, "lw": 0, "pad": 1.5},
        )  # fmt: skip
        words.set_in_layout(False)
