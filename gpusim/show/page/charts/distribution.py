"""How often each policy is within a factor of the best, over all machines, programs and memory sizes."""

from __future__ import annotations

from collections.abc import Sequence

from gpusim.results.metrics import metric as declared
from gpusim.results.result import Result
from gpusim.show.groups import starred
from gpusim.show.page.charts.parts import LegendEntry, PlotChart, PlotPanel, PlotView, hover, plain
from gpusim.show.style import looks
from gpusim.show.values.distribution import answer, profiles
from gpusim.show.view import main_metric


def chart(results: Sequence[Result]) -> PlotChart:
    """A line of steps per policy; one that stays below 1 fails somewhere."""
    lines = profiles(results)
    look = looks([line.name for line in lines], [line.name for line in lines if line.oracle])
    highest = max((float(line.values[-1]) for line in lines if len(line.values)), default=1.0) * 1.02
    lowest = min((float(line.values[0]) for line in lines if len(line.values)), default=1.0) / 1.01
    data = []
    for line in lines:
        last = float(line.shares[-1]) if len(line.shares) else 0.0
        within, shares = [lowest, *line.values.tolist(), highest], [0.0, *line.shares.tolist(), last]
        named = plain(starred(line.name, line.oracle))
        data.append({
            "type": "scatter", "mode": "lines", "legendgroup": starred(line.name, line.oracle), "x": within, "y": shares,
            "line": {"shape": "hv", "color": look[line.name].colour, "width": 2, "dash": "dash" if line.oracle else "solid"},
            **hover([f"<b>{named}</b>\nwithin {v:.4f}× of the best in {100 * s:.1f} % of {line.count} places"
                     for v, s in zip(within, shares, strict=True)]),
        })  # fmt: skip
    legend = [
        LegendEntry(starred(line.name, line.oracle), look[line.name].colour, "dash" if line.oracle else "line")
        for line in lines
    ]
    across = f"{declared(main_metric(results)).label}, within this factor of the best [×]"
    layout = {
        "xaxis": {"type": "log", "title": {"text": across}},
        "yaxis": {"title": {"text": "share of places"}, "tickformat": ".0%", "range": [0, 1.03]},
    }
    note = f"A place is a machine, program and memory size: {max((line.count for line in lines), default=0)} of them."
    panel = PlotPanel("", data, layout, 360)
    return PlotChart("How often is a policy how far from the best?", answer(lines), [PlotView("", [panel])], legend, note)
