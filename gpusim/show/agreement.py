"""One panel of measured against simulated values: log-log, the diagonal is agreement, a band around it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from gpusim.show.style import BLUE, FAINT, SOFT


class Cloud(NamedTuple):
    """Points of one kind and how they look."""

    measured: Sequence[float]
    simulated: Sequence[float]
    colour: str
    marker: str
    size: float


def panel(axes: Axes, title: str, clouds: Sequence[Cloud], said: str, band: float) -> None:
    """Draw the clouds, the first ones on top; `said`: a few words in the upper left corner; `band`: its relative half width."""
    low, high = math.inf, 0.0
    for cloud in reversed(clouds):
        if len(cloud.measured):
            low, high = min(low, *cloud.measured, *cloud.simulated), max(high, *cloud.measured, *cloud.simulated)
            axes.plot(cloud.measured, cloud.simulated, cloud.marker, color=cloud.colour, ms=cloud.size, mew=0, alpha=0.8)
    axes.set_title(title)
    if said:
        axes.text(0.05, 0.95, said, transform=axes.transAxes, va="top", color=BLUE, fontsize=8.5)
    axes.set_xscale("log")
    axes.set_yscale("log")
    for axis in (axes.xaxis, axes.yaxis):
        # Labels stand beside each other below a panel, above each other beside it.
        axis.set_major_locator(LogLocator(numticks=3 if axis is axes.xaxis else 5))
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}" if value >= 1 else f"{value:g}"))
        axis.set_minor_formatter(NullFormatter())
    axes.set_xlabel("measured", color=SOFT)
    axes.set_ylabel("simulated", color=SOFT)
    if high:
        ends = [low / 1.5, high * 1.5]
        axes.fill_between(ends, [e * (1 - band) for e in ends], [e * (1 + band) for e in ends], color=FAINT, alpha=0.7, lw=0)
        axes.plot(ends, ends, color=SOFT, lw=0.8)
        axes.set_xlim(*ends)
        axes.set_ylim(*ends)
