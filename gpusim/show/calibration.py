"""The figure of `gpusim calibrate compare`: simulated over measured, each row a point, one panel for each machine."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from gpusim.calibrate.compare.effects import P90
from gpusim.calibrate.compare.score import PARTS, Comparison
from gpusim.show.agreement import AXES, ROW, Cloud, panel
from gpusim.show.panels import grid, shape
from gpusim.show.style import BLUE, GREEN, GREY, ORANGE, PINK, canvas, headline, styled

_MARKS = ((BLUE, "o", 3.2), (ORANGE, "s", 2.6), (PINK, "D", 2.4), (GREY, "o", 1.6), (GREEN, "P", 2.6))
_LOOKS = dict(zip(PARTS, _MARKS, strict=True))


@styled
def draw(machines: Sequence[Comparison]) -> Figure:
    """The ratio over what was measured: 1 is agreement, the band 15 %; rates in GB/s and times in us share an axis."""
    figure = canvas()
    lines, columns = shape(len(machines))
    for index, (axes, found) in enumerate(zip(grid(figure, len(machines), sharey=True), machines, strict=True)):
        _panel(axes, found)
        axes.set_ylabel("simulated / measured" if index % columns == 0 else "")
        if index + columns < len(machines):
            axes.set_xlabel("")
    handles = [
        Line2D([], [], color=colour, marker=marker, ms=5, lw=0, label=part) for part, (colour, marker, _) in _LOOKS.items()
    ]
    headline(
        figure, "Is the simulator right about what was measured?",
        "Simulated over measured, each row a point: rates in GB/s or GFLOP/s, times in us; the band is 15 %.",
        "Triangles: beyond the axis, so many.", strip=handles, body=ROW * lines + AXES,
    )  # fmt: skip
    return figure


def _panel(axes: Axes, found: Comparison) -> None:
    clouds = []
    for part, looks in _LOOKS.items():
        mine = [p for s in found.compared if s.part == part for p in s.points if p.simulated > 0]
        measured = [_shown(p.row.value, p.row.unit) for p in mine]
        clouds.append(Cloud(measured, [_shown(p.simulated, p.row.unit) for p in mine], *looks))
    score = found.score()
    said = f"median {score[0]:.1%}, p90 {score[1]:.1%}" if score else ""
    panel(axes, found.machine, clouds, said, (1 - P90, 1 + P90))


def _shown(value: float, unit: str) -> float:
    return {"ns": 1e-3, "ms": 1e3}.get(unit, 1.0) * value
