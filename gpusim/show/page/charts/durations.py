"""How long kernels, copies and stalls take one by one: the share of them that takes no longer."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gpusim.base.units import show_time
from gpusim.results.activities import Activities
from gpusim.show.page.charts.parts import LegendEntry, PlotChart, PlotPanel, PlotView, hover, plain
from gpusim.show.steps import visible
from gpusim.show.style import looks
from gpusim.show.values.distribution import Cumulative
from gpusim.show.values.durations import answer, durations
from gpusim.show.view import scale

MOST = 12  # runs
COLUMNS = 250  # of pixels, to which the curves are exact


def chart(named: Sequence[tuple[str, Activities]]) -> PlotChart:
    """A panel per kind of activity, a line per run: its name and its rows."""
    found = durations(named[:MOST])
    names = list(dict.fromkeys(line.name for lines in found.values() for line in lines))
    look = looks(names)
    panels = []
    for title, lines in found.items():
        divisor, unit = scale("ns", max(float(line.values[-1]) for line in lines))
        data = [
            {
                "type": "scatter", "mode": "lines", "legendgroup": line.name, "x": (np.exp(at) / divisor).tolist(),
                "y": shares.tolist(), "line": {"shape": "hv", "color": look[line.name].colour, "width": 1.8},
                **hover([f"<b>{plain(line.name)}</b>\n{100 * s:.2f} % of {line.count:,} take no longer than {show_time(t, 5)}"
                         for t, s in zip(np.exp(at).tolist(), shares.tolist(), strict=True)]),
            }
            for line in lines for at, shares in (_seen(line),)
        ]  # fmt: skip
        layout = {
            "xaxis": {"type": "log", "title": {"text": f"takes [{unit}]"}},
            "yaxis": {"title": {"text": "share of them"}, "tickformat": ".0%", "range": [0, 1.03]},
        }
        panels.append(PlotPanel(title, data, layout, 280))
    legend = [LegendEntry(name, look[name].colour) for name in names]
    return PlotChart("How long do kernels, copies and waits take, one by one?", answer(found), [PlotView("", panels)], legend)


def _seen(line: Cumulative) -> tuple[np.ndarray, np.ndarray]:
    """The points that can be told apart on a logarithmic axis."""
    return visible(np.log(line.values), line.shares, COLUMNS)
