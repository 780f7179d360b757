"""How often is a policy how far from the best?  The share of places in which it is within a factor of the best."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter

from gpusim.results.metrics import metric as declared
from gpusim.results.result import Result
from gpusim.show.groups import starred
from gpusim.show.panels import logarithmic
from gpusim.show.style import SOFT, Look, canvas, empty, headline, looks, styled
from gpusim.show.values.distribution import Cumulative, answer, profiles
from gpusim.show.view import ORACLE, main_metric

HIGH = 3.3  # inches of the panel with its axis


@styled
def draw(results: Sequence[Result], question: str = "", metric: str = "") -> Figure:
    """A step per place (machine, program, memory size); a line that stays below 1 fails somewhere.  Oracles are dashed."""
    metric = metric or main_metric(results) if results else "slowdown"
    lines = list(profiles(results, metric)) if results else []
    figure = canvas()
    if not any(len(line.values) for line in lines):
        empty(figure, "No policies compete in any place.")
        return figure
    panel = figure.add_subplot()
    look = looks([line.name for line in lines], [line.name for line in lines if line.oracle])
    ends = [float(v) for line in lines for v in line.values]
    low, high = min(1.0, *ends), max(1.02, *ends)
    pad = (high / low) ** 0.03
    for rank, line in enumerate(lines):
        _line(panel, line, look[line.name], (low / pad, high * pad), rank)
    logarithmic(panel, low / pad, high * pad, lambda v: f"{v:.4g}×")
    panel.set_ylim(0, 1.04)
    panel.yaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{100 * v:.0f} %"))
    panel.set_ylabel("share of places")
    panel.set_xlabel(f"{declared(metric).label}, within this factor of the best")
    panel.axvline(1, color=SOFT, lw=0.9, zorder=1)
    panel.grid(axis="x", visible=True)
    _beside(panel, lines, look)
    note = f"A place is a machine, program and memory size: {max(line.count for line in lines)} of them."
    note += f" {ORACLE} reads the future." if any(line.oracle for line in lines) else ""
    tall = max(HIGH, 0.19 * len(lines) + 0.6)
    headline(figure, question or "How often is a policy how far from the best?", answer(lines), note, body=tall)
    return figure


def _line(panel: Axes, line: Cumulative, one: Look, limits: tuple[float, float], rank: int) -> None:
    """Steps from 0 to the share of places in which a run finished."""
    values, shares = list(line.values), list(line.shares)
    last = shares[-1] if shares else 0.0
    x = [limits[0], *values, limits[1]]
    y = [0.0, *shares, last]
    panel.step(x, y, where="post", color=one.colour, ls=one.line, lw=max(1.1, 2.2 - 0.12 * rank), gid=f"line:{line.name}")
    every = max(1, len(values) // 6)
    panel.plot(values[::every], shares[::every], one.marker, color=one.colour, ms=4.5 * one.grow, mec="white", mew=0.4)


def _beside(panel: Axes, lines: Sequence[Cumulative], look: dict[str, Look]) -> None:
    """The names right of the panel, the highest line first."""
    handles = [
        Line2D([], [], color=look[line.name].colour, ls=look[line.name].line, marker=look[line.name].marker, ms=5, lw=1.6,
               label=starred(line.name, line.oracle))
        for line in sorted(lines, key=_area, reverse=True)
    ]  # fmt: skip
    panel.legend(handles=handles, loc="upper left", bbox_to_anchor=(1.01, 1.02), borderaxespad=0, labelspacing=0.4)


def _area(line: Cumulative) -> float:
    """How high the line runs: the mean of 1 / ratio over all places, 0 where a run did not finish."""
    return float((1 / line.values).sum()) / max(line.count, 1)
