"""One panel of simulated over measured values: agreement is 1, with a band around it; some percent off can be seen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullFormatter, NullLocator

from gpusim.show.style import ALARM, BLUE, FAINT, SOFT

WIDEST = 2.05  # ratio from which a point stands at the edge
TICKS = (0.5, 0.7, 0.85, 1.0, 1.15, 1.4, 2.0)
FAR_TICKS = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)  # where the axis is wider than by a factor of 4
ROW, AXES = 2.0, 0.35  # inches of a row of panels, and of the axis below the last


class Cloud(NamedTuple):
    """Points of one kind and how they look."""

    measured: Sequence[float]
    simulated: Sequence[float]
    colour: str
    marker: str
    size: float


def panel(
    axes: Axes, title: str, clouds: Sequence[Cloud], said: str, band: tuple[float, float], unit: str = "",
    widest: float = WIDEST,
) -> None:  # fmt: skip
    """Draw the clouds, the first ones on top; points beyond the axis stand at its edge as triangles, and are counted.

    said   a few words in the upper left corner
    band   the ratios that count as agreement, from and to
    unit   of the measured values
    widest  ratio up to which the axis reaches, and down to its reciprocal
    """
    ends = []
    beyond = [0, 0]  # below, above
    for cloud in reversed(clouds):
        measured, simulated = np.asarray(cloud.measured, np.float64), np.asarray(cloud.simulated, np.float64)
        known = (measured > 0) & (simulated > 0)
        at, ratio = measured[known], simulated[known] / measured[known]
        ends += [at.min(), at.max()] if len(at) else []
        low, high = ratio < 1 / widest, ratio > widest
        inside = ~(low | high)
        axes.plot(at[inside], ratio[inside], cloud.marker, color=cloud.colour, ms=cloud.size, mew=0, alpha=0.75, gid="points")
        for side, (out, edge, marker) in enumerate(((low, 1.05 / widest, "v"), (high, widest / 1.05, "^"))):
            axes.plot(at[out], np.full(out.sum(), edge), marker, color=cloud.colour, ms=4, mew=0, alpha=0.75, gid="beyond")
            beyond[side] += int(out.sum())
    axes.set_title(title)
    axes.axhspan(*band, color=FAINT, alpha=0.75, lw=0, gid="band")
    axes.axhline(1, color=SOFT, lw=0.8)
    _axes(axes, ends, f"measured{f' [{unit}]' if unit else ''}", widest)
    words: dict[str, Any] = {"va": "top", "fontsize": 8, "transform": axes.transAxes}
    if said:
        axes.text(0.03, 0.97, said, color=BLUE, gid="score", **words)
    told = [f"{count} {where}" for count, where in zip(beyond, ("below", "above"), strict=True) if count]
    if told:
        axes.text(0.97, 0.885, ", ".join(told), color=ALARM, ha="right", gid="outside", **words)


def _axes(axes: Axes, ends: Sequence[float], label: str, widest: float) -> None:
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_ylim(1 / widest, widest ** (1.62 if widest < 4 else 1.55))  # above the points there is room for words
    axes.yaxis.set_major_locator(FixedLocator([t for t in (TICKS if widest < 4 else FAR_TICKS) if 1 / widest <= t <= widest]))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.tick_params(axis="y", labelsize=8)
    axes.xaxis.set_major_locator(LogLocator(numticks=4))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}" if value >= 1 else f"{value:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xlabel(label, color=SOFT)
    if ends:
        axes.set_xlim(min(ends) / 1.5, max(ends) * 1.5)
