"""Are the operators of a program bound by arithmetic or by memory?  Each under the roofs of its machine."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator

from gpusim.base.units import show_bytes
from gpusim.results.result import Result
from gpusim.show.panels import entitle, logarithmic
from gpusim.show.programs import RanProgram, programs
from gpusim.show.style import BLUE, INK, ORANGE, SOFT, VERMILION, canvas, empty, headline, styled
from gpusim.show.values.roofline import Roofline, RooflinePoint, answer, roofline, short

MOST = 3  # programs on machines, a row each
NAMED = 6  # operators of a panel that have a name
HIGH = 3.1  # inches of a row with its axes
_LOOKS = {"compute": (VERMILION, "o"), "memory": (BLUE, "s"), "launch": (ORANGE, "^")}


@styled
def draw(results: Sequence[Result], question: str = "", ran: Sequence[RanProgram] | None = None) -> Figure:
    """A row per program and machine: left operators that compute, right those that only move bytes; area is the share of time.

    ran  of each result, its program and machine; without it they are looked for by name
    """
    found = _rooflines(programs(results) if ran is None else ran)
    figure = canvas()
    if not found:
        empty(figure, "No program of these runs is there with the flops and bytes of its operators.")
        return figure
    shown = found[:MOST]
    axes = figure.subplots(len(shown), 2, squeeze=False, width_ratios=(1.25, 1))
    for (left, right), one in zip(axes, shown, strict=True):
        _flops(left, one)
        _bytes(right, one)
        entitle(left, f"{one.program} on {one.machine}" if len(shown) > 1 else "operators with flops", 2)
        entitle(right, "operators without flops", 2)
    used = {p.bound for one in shown for p in one.points}
    handles: list[Artist] = [
        Line2D([], [], ls="", marker=marker, color=colour, alpha=0.8, ms=7, label=f"bound by {name}")
        for name, (colour, marker) in _LOOKS.items() if name in used
    ]  # fmt: skip
    handles += [Line2D([], [], color=INK, lw=1.4, label="the vendor's number"),
                Line2D([], [], color=INK, lw=1.1, ls="--", label="what kernels reach")]  # fmt: skip
    note = f"{len(shown)} of {len(found)} programs on machines are shown. " if len(shown) < len(found) else ""
    note += "An area is a share of the time; a line the interval of the time. A point above memory's roof is served by a cache."
    headline(figure, question or f"What binds the operators of {shown[0].program} on {shown[0].machine}?", answer(shown),
             note, handles, body=len(shown) * HIGH)  # fmt: skip
    return figure


def _rooflines(ran: Sequence[RanProgram]) -> list[Roofline]:
    """One for each program on a machine, in order of appearance."""
    made: dict[tuple[object, ...], Roofline] = {}
    for one in ran:
        if one.trace is None or one.profile is None or not (one.trace.flops > 0).any():
            continue
        key = (one.trace.content_hash, one.profile.name, repr(one.profile.gpu), repr(one.profile.memory))
        if key not in made:  # machines that differ in their link alone have the same roofs
            made[key] = roofline(one.trace, one.profile)
    return list(made.values())


def _flops(panel: Axes, one: Roofline) -> None:
    points = one.of_flops(with_flops=True)
    intensity = [p.flops / p.moved for p in points]
    formats = {name: one.peak[name] for name in sorted(one.peak, key=lambda n: one.peak[n])}
    top, slowest = max(formats.values()), min([p.flops / (p.high * 1e-9) for p in points], default=1e12)
    low = min([*intensity, top / one.bandwidth]) / 3
    high = max([*intensity, top / one.bandwidth]) * 8
    ends = np.array([low, high])
    reached = (one.achieved, one.achieved_bandwidth, "--", 1.1)
    for rates, bandwidth, dashes, width in ((formats, one.bandwidth, "-", 1.4), reached):
        for name, rate in rates.items():
            ridge = rate / bandwidth
            panel.plot([ridge, high], [rate] * 2, dashes, color=INK, lw=width, gid=f"roof:{name}", zorder=2)
        widest = max(rates.values()) / bandwidth
        slope = [low * bandwidth, widest * bandwidth]
        panel.plot([low, widest], slope, dashes, color=INK, lw=width, gid="roof:memory", zorder=2)
    _formats(panel, formats, high)
    _points(panel, points, intensity, [p.flops / (p.ns * 1e-9) for p in points], [p.flops for p in points])
    logarithmic(panel, min(slowest, *formats.values()) / 3, top * 2.2, lambda v: f"{v / 1e12:g}", upright=True)
    logarithmic(panel, float(ends[0]), float(ends[1]), lambda v: f"{v:g}", columns=2)
    _names(panel, points, intensity, [p.flops / (p.ns * 1e-9) for p in points])
    panel.set_ylabel("TFLOP/s")
    panel.set_xlabel("flop per byte of its tensors")
    panel.grid(axis="x", visible=True)


def _formats(panel: Axes, formats: dict[str, float], high: float) -> None:
    """The number formats above their roofs; those of one rate share a line."""
    same: dict[float, list[str]] = {}
    for name, rate in formats.items():
        same.setdefault(rate, []).append(name)
    for rate, names in same.items():
        panel.annotate(", ".join(names), (high, rate), (-3, 2), textcoords="offset points", ha="right", fontsize=8, color=SOFT)


def _bytes(panel: Axes, one: Roofline) -> None:
    points = one.of_flops(with_flops=False)
    if not points:
        panel.set_axis_off()
        panel.text(0.5, 0.5, "none", ha="center", color=SOFT, transform=panel.transAxes)
        return
    moved = [p.moved for p in points]
    for rate, dashes, width in ((one.bandwidth, "-", 1.4), (one.achieved_bandwidth, "--", 1.1)):
        panel.axhline(rate, ls=dashes, color=INK, lw=width, gid="roof:memory", zorder=2)
    _points(panel, points, moved, [p.moved / (p.ns * 1e-9) for p in points], moved)
    slowest = min(p.moved / (p.high * 1e-9) for p in points)
    fastest = max(one.bandwidth, *(p.moved / (p.low * 1e-9) for p in points))
    low, high = max(slowest / 2, one.bandwidth / 1e4), min(fastest * 1.8, 8 * one.bandwidth)
    logarithmic(panel, low, high, lambda v: f"{v / 1e9:g}", upright=True)
    logarithmic(panel, min(moved) / 3, max(moved) * 6, show_bytes)
    panel.xaxis.set_major_locator(FixedLocator([1024.0**k for k in range(5)]))
    panel.set_xlim(min(moved) / 3, max(moved) * 6)
    _names(panel, points, moved, [p.moved / (p.ns * 1e-9) for p in points])
    panel.set_ylabel("GB/s")
    panel.set_xlabel("bytes of its tensors")
    panel.grid(axis="x", visible=True)


def _points(
    panel: Axes, points: Sequence[RooflinePoint], x: Sequence[float], y: Sequence[float], work: Sequence[float]
) -> None:
    """Area by share of the time, at least to be seen; the operators of the largest shares have their names."""
    for bound, (colour, marker) in _LOOKS.items():
        mine = [i for i, p in enumerate(points) if p.bound == bound]
        if mine:
            areas = [9 + 900 * points[i].share for i in mine]
            panel.scatter([x[i] for i in mine], [y[i] for i in mine], s=areas, marker=marker, color=colour,
                           alpha=0.7, lw=0.4, edgecolors="white", gid=f"operators:{bound}", zorder=3)  # fmt: skip
    for p, at, done in zip(points, x, work, strict=True):
        if p.high > p.low:
            panel.vlines(at, done / (p.high * 1e-9), done / (p.low * 1e-9), color=SOFT, lw=0.8, alpha=0.6, zorder=2.5)


def _names(panel: Axes, points: Sequence[RooflinePoint], x: Sequence[float], y: Sequence[float]) -> None:
    """The operators of the largest shares have their names, where these lie over no other; towards the middle of the panel."""
    named: set[str] = set()
    taken: list[tuple[float, float, float]] = []  # left and right end, height: shares of the panel
    for p, right, up in zip(points, x, y, strict=True):
        words = short(p.name)
        at, height = panel.transAxes.inverted().transform(panel.transData.transform((right, up)))
        wide, beside = 0.022 * len(words) + 0.03, at < 0.5
        left, end = (at, at + wide) if beside else (at - wide, at)
        free = all(left > b or end < a or abs(height - level) > 0.075 for a, b, level in taken)
        if p.name in named or len(named) == NAMED or not free or left < 0 or end > 1.02 or not 0.06 < height < 1:
            continue
        named.add(p.name)
        taken.append((left, end, height))
        panel.annotate(words, (right, up), (6 if beside else -6, -3), textcoords="offset points", va="top", fontsize=8,
                       ha="left" if beside else "right", gid=f"name:{p.name}", zorder=5,
                       bbox={"facecolor": "white", "alpha": 0.75, "lw": 0, "pad": 0.6}).set_in_layout(False)  # fmt: skip
