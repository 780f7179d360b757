"""How long do kernels, copies and waits take one by one?  The cumulative distribution of durations, a line per run."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter

from gpusim.base.units import show_time
from gpusim.results.result import Result
from gpusim.show.groups import in_order, starred
from gpusim.show.panels import entitle, grid, logarithmic, shape
from gpusim.show.programs import RanProgram
from gpusim.show.steps import visible
from gpusim.show.style import SOFT, Look, canvas, empty, headline, looks, styled
from gpusim.show.timelines import timelines
from gpusim.show.values.distribution import Cumulative
from gpusim.show.values.durations import answer, durations
from gpusim.show.view import ORACLE, pick, run_name, varying

MOST = 12  # runs
HIGH = 2.25  # inches of a row of panels with its axes


@styled
def draw(results: Sequence[Result], question: str = "", ran: Sequence[RanProgram] | None = None) -> Figure:
    """A panel per kind of activity, logarithmic in time.  Oracles are dashed; dotted lines are at half and 99 %.

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
    names = [starred(run_name(run, keys), run.oracle) for run in shown]
    panels = durations([(name, rows_of[id(run)]) for name, run in zip(names, shown, strict=True)])
    if not panels:
        empty(figure, "Nothing in these runs takes any time.")
        return figure
    look = looks(names, [name for name, run in zip(names, shown, strict=True) if run.oracle])
    rows, columns = shape(len(panels))
    for index, (panel, (title, lines)) in enumerate(zip(grid(figure, len(panels), sharey=True), panels.items(), strict=True)):
        for rank, line in enumerate(lines):
            _line(panel, line, look[line.name], rank, len(lines))
        _axis(panel, lines, columns)
        entitle(panel, title, len(panels))
        panel.set_ylabel("share of them" if index % columns == 0 else "")
    handles = [
        Line2D([], [], color=look[name].colour, ls=look[name].line, marker=look[name].marker, ms=5, label=name)
        for name in names
    ]
    note = f"{note} {ORACLE} reads the future." if any(run.oracle for run in shown) else note
    headline(figure, question or "How long do kernels, copies and waits take, one by one?", answer(panels), note,
             handles if len(names) > 1 else (), body=rows * HIGH + (0.8 if rows == 1 else 0.0))  # fmt: skip
    return figure


def _line(panel: Axes, line: Cumulative, one: Look, rank: int, count: int) -> None:
    at, y = visible(np.log10(line.values), line.shares, 600)  # as many columns as the logarithmic axis has
    x = 10**at
    width = 2.2 - 1.1 * rank / max(1, count - 1)
    panel.step([x[0], *x], [0.0, *y], where="post", color=one.colour, ls=one.line, lw=width, gid=f"line:{line.name}")
    middle = line.quantile(0.5)
    if middle is not None:
        panel.plot([middle], [0.5], one.marker, color=one.colour, ms=5 * one.grow, mec="white", mew=0.4, zorder=4,
                   gid=f"median:{line.name}")  # fmt: skip


def _axis(panel: Axes, lines: Sequence[Cumulative], columns: int) -> None:
    low, high = min(float(line.values[0]) for line in lines), max(float(line.values[-1]) for line in lines)
    pad = max((high / low) ** 0.04, 1.03)
    logarithmic(panel, low / pad, high * pad, show_time, columns + 1)
    panel.set_ylim(0, 1.03)
    panel.yaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{100 * v:.0f} %"))
    for share in (0.5, 0.99):
        panel.axhline(share, color=SOFT, lw=0.7, ls=":", zorder=1)
    panel.grid(axis="x", visible=True)
