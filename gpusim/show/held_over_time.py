"""What would each allocator have held?  A panel per candidate: reserved, allocated and requested bytes over the program."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from gpusim.base.units import show_bytes
from gpusim.policies.trials.allocator_replay import AllocatorReplay
from gpusim.show.panels import entitle, grid, shape
from gpusim.show.steps import visible
from gpusim.show.style import ALARM, BLUE, DPI, FAINT, INK, ORANGE, SOFT, WIDTH, canvas, headline, styled
from gpusim.show.view import scale
from gpusim.studies.fragmentation.baseline import SettingOutcome
from gpusim.studies.fragmentation.recorded import NAME
from gpusim.studies.fragmentation.study import FragmentationStudy, show_share
from gpusim.trace.trace import I64

FAR = 3  # times what is held now: a curve beyond leaves its panel
PANEL, AXES = 1.32, 0.42  # inches of a row of panels with its titles; of the axis below the last


@dataclass(frozen=True)
class Scale:
    """The axes of all panels: bytes per unit, the highest and the last value, and pixels of a panel."""

    per_byte: float
    top: float
    last: int
    columns: int


@styled
def draw(found: FragmentationStudy) -> Figure:
    """What is now, then every candidate, those that hold least first; each with the curve of now behind it."""
    shown = _all(found)
    figure = canvas()
    rows, columns = shape(len(shown))
    highest = max((r.held_peak for r in shown if not _far(found, r)), default=1)
    per_byte, unit = scale("B", highest)
    level = found.capacity if found.capacity < 1.3 * highest else 0
    last = max(found.program.total - found.program.before, 1)
    how = Scale(per_byte, max(highest, level) / per_byte * 1.3, last, round(WIDTH * DPI) // columns)
    axes = grid(figure, len(shown), sharex=True, sharey=True)
    for index, (panel, replay) in enumerate(zip(axes, shown, strict=True)):
        now = replay is found.now
        _panel(panel, found, replay, how)
        entitle(panel, f"{replay.name} (now)" if now and replay.name != NAME else replay.name, len(shown))
        panel.annotate(_said(found, replay), (0.02, 0.97), xycoords="axes fraction", va="top", fontsize=8, color=INK,
                       gid=f"peak:{replay.name}", zorder=6)  # fmt: skip
        if level:
            panel.axhline(found.capacity / per_byte, color=ALARM, lw=1.1, ls="--", gid="capacity")
        panel.set_ylabel(f"memory [{unit}]" if index % columns == 0 else "")
        panel.set_xlabel("request" if index + columns >= len(shown) else "")
    axes[0].set_xlim(0, last)
    axes[0].set_ylim(0, how.top or 1)
    axes[0].locator_params(axis="y", nbins=4)
    axes[0].locator_params(axis="x", nbins=9 // columns + 1)
    headline(figure, "What would each allocator have held?", _least(found), "", _handles(found, shown, bool(level)),
             body=rows * PANEL + AXES)  # fmt: skip
    return figure


def _panel(panel: Axes, found: FragmentationStudy, replay: AllocatorReplay, how: Scale) -> None:
    """Requested as an area, what is held beyond it in a paler colour, allocated dotted, and the curve of now."""
    at, held = _at(replay).astype(np.float64), replay.samples["held"] / how.per_byte
    requested = replay.samples["requested"] / how.per_byte
    panel.fill_between(at, requested, held, step="post", color=ORANGE, alpha=0.22, lw=0, gid=f"beyond:{replay.name}")
    panel.fill_between(at, 0, requested, step="post", color=FAINT, lw=0, gid="requested")
    if replay is not found.now:
        mine = found.now.samples["held"] / how.per_byte
        points = visible(_at(found.now).astype(np.float64), mine, how.columns)
        panel.step(*points, where="post", color=SOFT, lw=1.0, ls="--", gid="now")
    rounded = replay.samples["rounded"] / how.per_byte
    panel.step(*visible(at, rounded, how.columns), where="post", color=BLUE, lw=0.8, ls=":",
               gid=f"allocated:{replay.name}")  # fmt: skip
    panel.step(*visible(at, held, how.columns), where="post", color=ORANGE, lw=1.6, gid=replay.name)
    if not replay.fits:
        refused = replay.counts["refused_at"]
        high = min(held[min(refused // replay.counts["bucket"], len(held) - 1)], how.top)
        panel.plot([refused - replay.program.before], [high], "x", color=ALARM, ms=7, mew=2, gid=f"refused:{replay.name}",
                   clip_on=False, zorder=5)  # fmt: skip


def _handles(found: FragmentationStudy, shown: list[AllocatorReplay], level: bool) -> list[Artist]:
    handles: list[Artist] = [
        Line2D([], [], color=ORANGE, lw=1.6, label="reserved"),
        Line2D([], [], color=SOFT, lw=1.0, ls="--", label="reserved now"),
        Line2D([], [], color=BLUE, lw=0.9, ls=":", label="allocated"),
        Patch(facecolor=FAINT, label="requested"),
    ]
    if level:
        handles.append(Line2D([], [], color=ALARM, lw=1.1, ls="--", label="capacity"))
    if any(not r.fits for r in shown):
        handles.append(Line2D([], [], color=ALARM, marker="x", ls="", ms=6, mew=2, label="a request is refused"))
    return handles


def _at(replay: AllocatorReplay) -> I64:
    """The request of each sample, counted from the recording's first: each allocator begins with requests of its own."""
    at: I64 = np.arange(len(replay.samples)) * replay.counts["bucket"] - replay.program.before
    return at


def _all(found: FragmentationStudy) -> list[AllocatorReplay]:
    """What is now, then all candidates of the table in its order, least held first."""
    return [found.now, *(t.high for t in found.tried if t.high.name != found.now.name)]


def _far(found: FragmentationStudy, replay: AllocatorReplay) -> bool:
    """It holds so much more than now that beside it nothing else could be told apart."""
    return replay.held_peak > FAR * max(found.now.held_peak, found.asked)


def _said(found: FragmentationStudy, replay: AllocatorReplay) -> str:
    """The peak, against that of now; an arrow where the curve leaves the panel."""
    peak, now = replay.held_peak, found.now.held_peak
    words = show_bytes(peak) + (" ↑" if _far(found, replay) else "")
    if replay is found.now or not now or math.isclose(peak, now, rel_tol=5e-4):
        return words
    return f"{words}, {show_share(abs(peak / now - 1))} {'more' if peak > now else 'less'}"


def _least(found: FragmentationStudy) -> str:
    first: SettingOutcome | None = next((t for t in found.tried if t.fits), None)
    if first is None:
        return "No candidate can serve all requests."
    own = found.base.replay.held_peak
    saved = 1 - first.high.held_peak / own if own else 0.0
    than = f", {show_share(saved)} less than its own allocator" if saved > 0 else ", no less than its own allocator"
    return f"{first.high.name} holds least: {show_bytes(first.high.held_peak)} at its peak{than}."
