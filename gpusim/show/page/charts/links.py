"""The busiest links of the machine of the best run of ranks, a bar each."""

from __future__ import annotations

from collections.abc import Sequence

from gpusim.base.units import show_bytes
from gpusim.results.result import Result
from gpusim.show.page.charts.parts import PlotChart, PlotPanel, PlotView, bars_height, hover, plain
from gpusim.show.style import VERMILION
from gpusim.show.values.links import busy_links

MOST = 40


def chart(results: Sequence[Result]) -> PlotChart:
    """The busiest first."""
    found = busy_links(results)
    if isinstance(found, str):
        return PlotChart("Which links are busy?", found, [])
    shown = dict(list(found.busy.items())[:MOST])
    words = [
        f"<b>{plain(name)}</b>\nbusy {100 * share:.1f} % of the time\n{show_bytes(found.bytes[name])}"
        for name, share in shown.items()
    ]
    data = [{
        "type": "bar", "orientation": "h", "y": [plain(name) for name in shown], "x": [100 * share for share in shown.values()],
        "marker": {"color": VERMILION}, "textposition": "none", **hover(words),
    }]  # fmt: skip
    layout = {
        "xaxis": {"title": {"text": "busy [% of the run's time]"}, "rangemode": "tozero"},
        "yaxis": {"autorange": "reversed", "automargin": True, "type": "category"},
    }
    left = len(found.busy) - len(shown)
    note = f"Run: {found.run}." + (f" {left} links that are less busy are not shown." if left else "")
    views = [PlotView("", [PlotPanel("", data, layout, bars_height(len(shown)))])]
    return PlotChart(f"Which links of {found.machine.name} are busy?", found.answer, views, note=note)
