"""Does it fit, and what fills the memory?  Requested, allocated and reserved bytes over time, against the capacity."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from gpusim.base.text import join
from gpusim.base.units import show_bytes, show_time
from gpusim.results.result import Result
from gpusim.show.groups import in_order, starred
from gpusim.show.moments import axis, end, moments, rows, timed
from gpusim.show.panels import entitle, grid, shape
from gpusim.show.steps import visible
from gpusim.show.style import ALARM, BLUE, DPI, INK, ORANGE, PINK, SKY, SOFT, WIDTH, canvas, empty, headline, styled
from gpusim.show.view import ending, pick, run_name, scale, varying

MOST = 9
LEVELS = ("requested_bytes", "allocated_bytes", "reserved_bytes", "host_bytes")
APART = 3.0  # slowest over fastest run from which each has its own axis of time
Phases = Sequence[tuple[float, float, str]]  # start ns, end ns, name


@styled
def draw(results: Sequence[Result], question: str = "", phases: Mapping[int, Phases] | None = None) -> Figure:
    """One panel per run.  `phases` shades spans of time by the index of the result in `results`."""
    known = [r for r in results if rows(r)]
    if not known:
        figure = canvas()
        empty(figure, "No run recorded its memory over time.")
        return figure
    shown, note = pick(known, MOST)
    shown, keys = in_order(shown, results), varying(shown)
    down, columns = shape(len(shown))
    figure = canvas(down)
    ends = [end(r) for r in shown if r.finished] or [end(r) for r in shown]
    last = max(end(r) for r in shown)
    # What is filled when is told by the shape: a run that is many times faster than another would be a mere line.
    together = last <= APART * min(ends) and len({timed(r) for r in shown}) == 1
    axes = grid(figure, len(shown), sharex=together, sharey=True)
    top = max(max(_capacity(r) or 0, _highest(r)) for r in shown)
    per_byte, byte_unit = scale("B", top)
    index = {id(r): i for i, r in enumerate(results)}
    for panel, run in zip(axes, shown, strict=True):
        until = last if together else end(run)
        per_time, label = axis([run], last)
        _panel(panel, run, until / per_time, per_time, per_byte, round(WIDTH * DPI) // columns)
        panel.set_xlim(0, until / per_time * 1.02)
        panel.set_xlabel(label)
        panel.locator_params(axis="x", nbins=9 // columns + 2)
        panel.locator_params(axis="y", nbins=7 if down < 3 else 5)
        _shade(panel, (phases or {}).get(index[id(run)], ()), per_time)
        entitle(panel, starred(run_name(run, keys), run.oracle) if len(shown) > 1 else "", len(shown))
    axes[0].set_ylim(0, top / per_byte * 1.10 or 1)
    for i, panel in enumerate(axes):
        panel.set_ylabel(f"memory [{byte_unit}]" if i % columns == 0 else "")
        if i + columns < len(axes):
            panel.set_xlabel("")
    handles: list[Artist] = [
        Line2D([], [], color=ALARM, lw=1.2, ls="--", label="capacity"),
        Line2D([], [], color=ORANGE, lw=1.5, label="reserved"),
        Line2D([], [], color=BLUE, lw=1.5, label="allocated"),
        Patch(facecolor=SKY, alpha=0.45, label="requested"),
    ]
    if any(_column(r, "host_bytes").any() for r in shown):
        handles.append(Line2D([], [], color=PINK, lw=1.5, ls="-.", label="swapped out"))
    if any(not r.finished for r in shown):
        handles.append(Line2D([], [], color=ALARM, marker="x", ls="", ms=7, mew=2, label="the run stops"))
    if not together:
        note = f"{note} Each run has its own axis of time.".strip()
    headline(figure, question or "Does it fit, and what fills the memory?", _answer(shown, keys), note, handles)
    return figure


def _column(run: Result, name: str) -> npt.NDArray[np.float64]:
    return np.asarray(run.timeline.get(name, np.zeros(rows(run))), np.float64)


def _capacity(run: Result) -> float | None:
    found = run.spec.get("capacity", run.spec.get("memory"))
    return float(found) if isinstance(found, int | float) else None


def _highest(run: Result) -> float:
    return max(float(_column(run, name).max(initial=0)) for name in LEVELS)


def _panel(panel: Axes, run: Result, last: float, per_time: float, per_byte: float, columns: int) -> None:
    time = moments(run) / per_time
    levels = [_column(run, name) / per_byte for name in LEVELS]
    if run.finished and end(run) / per_time > time[-1]:  # nothing changes after the last allocation
        time = np.append(time, end(run) / per_time)
        levels = [np.append(level, level[-1]) for level in levels]
    requested, allocated, reserved, host = levels
    edges, filled = visible(time, requested, columns)
    panel.stairs(filled[:-1], edges, fill=True, color=SKY, alpha=0.45, lw=0, gid="requested")
    panel.step(*visible(time, reserved, columns), where="post", color=ORANGE, lw=1.4, gid="reserved")
    panel.step(*visible(time, allocated, columns), where="post", color=BLUE, lw=1.2, gid="allocated")
    if host.any():
        # Bytes leave and come all the while until the operator that waits for them begins: no step.
        panel.plot(*visible(time, host, columns, step=False), color=PINK, lw=1.4, ls="-.", gid="host")
    capacity = _capacity(run)
    if capacity is not None:
        panel.axhline(capacity / per_byte, color=ALARM, lw=1.2, ls="--", gid="capacity")
    if not run.finished:
        at, height = float(time[-1]), float(reserved[-1])
        late = at > 0.5 * last
        panel.plot([at], [height], "x", color=ALARM, ms=8, mew=2.2, gid=f"failed:{ending(run)}", zorder=5, clip_on=False)
        words = panel.annotate(
            ending(run), (at, height), (-9 if late else 9, -1), textcoords="offset points", color=ALARM, fontsize=8.5,
            ha="right" if late else "left", va="center", bbox={"facecolor": "white", "alpha": 0.85, "lw": 0, "pad": 1.5},
        )  # fmt: skip
        words.set_in_layout(False)


def _shade(panel: Axes, phases: Phases, per_time: float) -> None:
    for i, (start, until, name) in enumerate(phases):
        panel.axvspan(start / per_time, until / per_time, color=INK, alpha=0.045 * (i % 2), lw=0, gid=f"phase:{name}")
        panel.annotate(name, ((start + until) / 2 / per_time, 1), (0, -2), xycoords=panel.get_xaxis_transform(),
                       textcoords="offset points", ha="center", va="top", fontsize=8, color=SOFT)  # fmt: skip


def _answer(shown: Sequence[Result], keys: Sequence[str]) -> str:
    """For one run its peaks; for several, which fit."""
    if len(shown) == 1:
        run = shown[0]
        parts = [
            f"{word} {show_bytes(_column(run, name).max(initial=0))}"
            for word, name in (("requested", "requested"), ("allocated", "allocated"), ("reserved", "reserved"))
        ]
        capacity = _capacity(run)
        limit = f" of {show_bytes(capacity)}" if capacity is not None else ""
        peak = f"At its peak the program has {join(parts)}{limit}"
        return peak + (f", then the run stops: {ending(run)}." if not run.finished else ".")
    failed = [f"{run_name(r, keys)} ({ending(r)} at {_when(r)})" for r in shown if not r.finished]
    most = max(shown, key=lambda r: float(_column(r, "host_bytes").max(initial=0)))
    host = float(_column(most, "host_bytes").max(initial=0))
    swapped = f"{run_name(most, keys)} has most swapped out, {show_bytes(host)}." if host else "Nothing is swapped out."
    return (f"These do not fit: {join(failed)}. " if failed else "All runs fit. ") + swapped


def _when(run: Result) -> str:
    return show_time(end(run)) if timed(run) else f"event {end(run):,.0f}"
