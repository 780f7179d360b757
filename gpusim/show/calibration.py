"""The figure of `gpusim calibrate compare`: measured against simulated, each row a point, one panel for each machine."""

from __future__ import annotations

import math
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from gpusim.calibrate.compare.effects import P90
from gpusim.calibrate.compare.score import PARTS, Comparison
from gpusim.show.agreement import Cloud, panel
from gpusim.show.style import BLUE, GREEN, GREY, ORANGE, PINK, canvas, headline, styled

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
        _panel(figure.add_subplot(lines, columns, number + 1), found)
    handles = [
        Line2D([], [], color=colour, marker=marker, ms=5, lw=0, label=part) for part, (colour, marker, _) in _LOOKS.items()
    ]
    headline(
        figure, "Is the simulator right about what was measured?",
        "Simulated over measured, each row a point: rates in GB/s or GFLOP/s, times in us; the band is 15 %.", strip=handles,
    )  # fmt: skip
    return figure


def _panel(axes: Axes, found: Comparison) -> None:
    clouds = []
    for part, looks in _LOOKS.items():
        mine = [p for s in found.compared if s.part == part for p in s.points if p.simulated > 0]
        measured = [_shown(p.row.value, p.row.unit) for p in mine]
        clouds.append(Cloud(measured, [_shown(p.simulated, p.row.unit) for p in mine], *looks))
    score = found.score()
    said = f"median {score[0]:.1%}\np90 {score[1]:.1%}" if score else ""
    panel(axes, found.machine, clouds, said, P90)


def _shown(value: float, unit: str) -> float:
    return {"ns": 1e-3, "ms": 1e3}.get(unit, 1.0) * value
