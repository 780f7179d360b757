"""What happens when, and what waits for it?  Streams, copy engines and stalls of a run side by side over time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from gpusim.base.units import show_bytes, show_time
from gpusim.results.activities import Activities
from gpusim.results.result import Result
from gpusim.show.groups import in_order, starred
from gpusim.show.panels import entitle
from gpusim.show.programs import RanProgram
from gpusim.show.steps import visible
from gpusim.show.style import (
    ALARM,
    BLUE,
    DPI,
    FAINT,
    GREEN,
    INDIGO,
    OLIVE,
    ORANGE,
    PINK,
    SKY,
    SOFT,
    VERMILION,
    WIDTH,
    WINE,
    canvas,
    empty,
    headline,
    styled,
)  # fmt: skip
from gpusim.show.timelines import timelines
from gpusim.show.values.breakdown import PARTS
from gpusim.show.values.swimlane import Swimlanes, busiest, swimlanes
from gpusim.show.view import pick, run_name, scale, varying

MOST = 3  # runs; one alone has a part of its time enlarged, and its memory
COLUMNS = 1400
DETAIL = 25  # the enlarged part is the run's time divided by this
LANE, AXES, MEMORY = 0.24, 0.72, 0.85  # inches of a lane, of the axis and title of a panel, of the panel of memory
COLOURS = {
    "kernel": BLUE, "swap in": VERMILION, "swap out": ORANGE, "migration": INDIGO, "eviction": ORANGE,
    "program's own copy": GREEN, "collective": PINK,
    "host": "#4A4F5C", "faults served": WINE, "device call": OLIVE, "waits for swap-in": "#F0B48F",
    "waits for swap-out": "#F4DCA4", "waits for its launch": "#BFE0F3", "waits for faults": "#CFA3B9",
    "waits for migration": "#B7B2DE", "waits for the CPU": "#8D93A1", "waits otherwise": "#C4C8CF",
}  # fmt: skip


@styled
def draw(results: Sequence[Result], question: str = "", ran: Sequence[RanProgram] | None = None) -> Figure:
    """A lane per stream, engine and link, and beside a stream its stalls; a column of pixels is as dark as it is busy.

    ran  of each result, its program and machine; without it they are looked for by name
    """
    found, why = timelines(results, ran)
    figure = canvas()
    if not found:
        empty(figure, why)
        return figure
    rows_of = {id(run): rows for run, rows in found}
    shown, note = pick([run for run, _ in found], MOST)
    shown, keys = in_order(shown, results), varying(shown)
    rows = [rows_of[id(run)] for run in shown]
    parts, titles = _parts(shown, rows, keys)
    heights = [LANE * len(part.lanes) + 0.05 for part in parts]
    below = [MEMORY] if len(shown) == 1 and rows[0].counters else []
    axes = figure.subplots(len(parts) + len(below), 1, squeeze=False, height_ratios=[*heights, *below])[:, 0]
    for panel, part, title in zip(axes, parts, titles, strict=False):
        _lanes(panel, part)
        entitle(panel, title, 1)
    handles: list[Artist] = [
        Patch(facecolor=colour, label=name) for name, colour in COLOURS.items() if any(name in p.classes for p in parts)
    ]
    if len(shown) == 1:
        per_time, _ = scale("ns", parts[0].end)
        span = [t / per_time for t in (parts[1].start, parts[1].end)]
        axes[0].axvspan(*span, fill=False, ec=ALARM, lw=1.2, zorder=5, gid="enlarged")
        handles.append(Patch(facecolor="white", edgecolor=ALARM, lw=1.2, label="enlarged below"))
    if below:
        handles += _memory(axes[-1], shown[0], rows[0], parts[0].end)
    asked = question or "What happens when, and what waits for it?"
    body = sum(heights) + AXES * len(parts) + (MEMORY + 0.45) * len(below)
    headline(figure, asked, _answer(shown, rows, keys), note, handles, body=body)
    return figure


def _parts(shown: Sequence[Result], rows: Sequence[Activities], keys: Sequence[str]) -> tuple[list[Swimlanes], list[str]]:
    """The lanes of each run over one span of time, with titles; of a single run a part is enlarged."""
    last = max(int(one.rows["end"].max(initial=1)) for one in rows)
    parts = [swimlanes(one, COLUMNS, 0, last) for one in rows]
    if len(shown) > 1:
        return parts, [starred(run_name(r, keys), r.oracle) for r in shown]
    start, end = busiest(rows[0], max(last // DETAIL, 1))
    enlarged = f"enlarged: {show_time(start)} to {show_time(end)}, where most is waited for"
    return [*parts, swimlanes(rows[0], COLUMNS, start, end)], ["the whole run", enlarged]


def _lanes(panel: Axes, part: Swimlanes) -> None:
    """An image of one row per lane: the mean colour of what the lane does in a column, white where it is idle."""
    divisor, unit = scale("ns", part.end)
    ink = np.array([to_rgb(COLOURS[name]) for name in part.classes])
    share = part.busy.sum(axis=1, keepdims=True)
    mixed = np.einsum("lkn,kc->lnc", part.busy / np.maximum(share, 1e-12), ink)
    # What is rarely busy must still be seen: the least ink of a column in which anything happens is a quarter.
    depth = np.where(share > 0, 0.25 + 0.75 * np.minimum(share, 1.0), 0.0)[:, 0, :, None]
    image = 1 - depth * (1 - mixed)
    extent = (part.start / divisor, part.end / divisor, len(part.lanes) - 0.5, -0.5)
    panel.imshow(np.clip(image, 0, 1), aspect="auto", extent=extent, interpolation="nearest", gid="lanes")
    panel.grid(visible=False)
    for y in range(1, len(part.lanes)):
        panel.axhline(y - 0.5, color=FAINT, lw=0.6)
    panel.set_yticks(range(len(part.lanes)), [name for name, _ in part.lanes], fontsize=8)
    panel.tick_params(axis="y", length=0)
    panel.set_xlim(part.start / divisor, part.end / divisor)
    panel.set_xlabel(f"time [{unit}]")


def _memory(panel: Axes, run: Result, rows: Activities, last: int) -> list[Artist]:
    """Bytes on the device and in each tier below it, against the capacity."""
    per_time, unit = scale("ns", last)
    colours = {"allocated": BLUE, "reserved": ORANGE}
    spare = iter((PINK, GREEN, WINE, OLIVE, SKY))
    top = max((float(levels.max(initial=0)) for _, levels in rows.counters.values()), default=0.0)
    capacity = run.spec.get("capacity")
    limit = float(capacity) if isinstance(capacity, int | float) and float(capacity) < 1.5 * top else 0.0
    per_byte, byte_unit = scale("B", max(top, limit, 1.0))
    handles: list[Artist] = []
    for name, (times, levels) in rows.counters.items():
        if not len(times) or not levels.any():
            continue
        colour = colours.get(name) or next(spare, SOFT)
        at = np.append(times, last).astype(np.float64) / per_time
        height = np.append(levels, levels[-1]).astype(np.float64) / per_byte
        panel.step(*visible(at, height, round(WIDTH * DPI)), where="post", color=colour, lw=1.3, gid=f"memory:{name}")
        handles.append(Line2D([], [], color=colour, lw=1.3, label=name if name in colours else f"in {name} memory"))
    if limit:
        panel.axhline(limit / per_byte, color=ALARM, lw=1.1, ls="--", gid="capacity")
        handles.append(Line2D([], [], color=ALARM, lw=1.1, ls="--", label="capacity"))
    panel.set_xlim(0, last / per_time)
    panel.set_ylim(0, max(top, limit, 1.0) / per_byte * 1.08)
    panel.locator_params(axis="y", nbins=4)
    panel.set_ylabel(f"memory [{byte_unit}]")
    panel.set_xlabel(f"host time [{unit}]")
    return handles


def _answer(shown: Sequence[Result], rows: Sequence[Activities], keys: Sequence[str]) -> str:
    """The largest causes of waiting of the first run, and what it moved."""
    run, one = shown[0], rows[0]
    stalls = sorted(one.stalls().items(), key=lambda item: -item[1])[:2]
    moved = int(one.of_kind("swap_in", "swap_out", "migration", "eviction")["bytes"].sum())
    named = f"{run_name(run, keys)}: " if len(shown) > 1 else ""
    causes = [f"{show_time(ns)} {PARTS.get(name, name)}" for name, ns in stalls if ns > 0]
    said = f"{named}streams lose most {' and '.join(causes)}." if causes else f"{named}no stream waits."
    said = said[0].upper() + said[1:] if not named else said
    return f"{said} {show_bytes(moved)} are moved." if moved else said
