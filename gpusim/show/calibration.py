"""The figure of `gpusim calibrate compare`: measured against simulated, each row a point, one panel for each machine."""

from __future__ import annotations

import math
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from gpusim.calibrate.compare.effects import P90
from gpusim.calibrate.compare.score import PARTS, Comparison
from gpusim.show.style import BLUE, FAINT, GREEN, GREY, ORANGE, PINK, SOFT, canvas, headline, styled

_COLUMNS = 3
_MARKS = ((BLUE, "o", 3.2), (ORANGE, "s", 2.6), (PINK, "D", 2.4), (GREY, ".", 2.2), (GREEN, "^", 2.6))
_LOOKS = dict(zip(PARTS, _MARKS, strict=True))


@styled
def draw(machines: Sequence[Comparison]) -> Figure:
    """Log-log, the diagonal is agreement, the band 15 %; rates in GB/s and times in us share the axes."""
    columns = min(_COLUMNS, len(machines))
    lines = math.ceil(len(machines) / columns)
    figure = canvas(height=1.2 + 2.6 * lines)
    for number, found in enumerate(machines):
        panel = figure.add_subplot(lines, columns, number + 1)
        _panel(panel, found)
    handles = [
        Line2D([], [], color=colour, marker=marker, ms=5, lw=0, label=part) for part, (colour, marker, _) in _LOOKS.items()
    ]
    headline(
        figure, "Is the simulator right about what was measured?",
        "Simulated over measured, each row a point: rates in GB/s or GFLOP/s, times in us; the band is 15 %.", strip=handles,
    )  # fmt: skip
    return figure


def _panel(panel: Axes, found: Comparison) -> None:
    low, high = math.inf, 0.0
    for part in reversed(PARTS):
        colour, marker, size = _LOOKS[part]
        mine = [p for s in found.compared if s.part == part for p in s.points if p.simulated > 0]
        points = [(_shown(p.row.value, p.row.unit), _shown(p.simulated, p.row.unit)) for p in mine]
        if points:
            x, y = zip(*points, strict=True)
            low, high = min(low, *x, *y), max(high, *x, *y)
            panel.plot(x, y, marker, color=colour, ms=size, mew=0, alpha=0.8)
    score = found.score()
    panel.set_title(found.machine)
    if score:
        said = f"median {score[0]:.1%}\np90 {score[1]:.1%}"
        panel.text(0.05, 0.95, said, transform=panel.transAxes, va="top", color=BLUE, fontsize=8.5)
    panel.set_xscale("log")
    panel.set_yscale("log")
    for axis in (panel.xaxis, panel.yaxis):
        # Labels stand beside each other below a panel, above each other beside it.
        axis.set_major_locator(LogLocator(numticks=3 if axis is panel.xaxis else 5))
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}" if value >= 1 else f"{value:g}"))
        axis.set_minor_formatter(NullFormatter())
    panel.set_xlabel("measured", color=SOFT)
    panel.set_ylabel("simulated", color=SOFT)
    if high:
        ends = [low / 1.5, high * 1.5]
        panel.fill_between(ends, [e * (1 - P90) for e in ends], [e * (1 + P90) for e in ends], color=FAINT, alpha=0.7, lw=0)
        panel.plot(ends, ends, color=SOFT, lw=0.8)
        panel.set_xlim(*ends)
        panel.set_ylim(*ends)


def _shown(value: float, unit: str) -> float:
    return {"ns": 1e-3, "ms": 1e3}.get(unit, 1.0) * value
