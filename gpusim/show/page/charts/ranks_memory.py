"""Reserved memory of each rank, or program beside others, of the best run over time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gpusim.base.units import show_bytes, show_time
from gpusim.results.result import Result
from gpusim.show.page.charts.parts import ALARM, LegendEntry, PlotChart, PlotPanel, PlotView, hover, plain
from gpusim.show.steps import visible
from gpusim.show.style import looks
from gpusim.show.values.ranks_memory import held_by_ranks
from gpusim.show.view import scale

MOST, COLUMNS = 24, 400
CAPACITY = "capacity"


def chart(results: Sequence[Result]) -> PlotChart:
    """A line for each class of equal ranks."""
    found = held_by_ranks(results)
    if found is None:
        return PlotChart("What does each rank hold?", "", [])
    shown = dict(list(found.curves.items())[:MOST])
    last = max(float(time[-1]) for time, _ in shown.values())
    per_time, time_unit = scale("ns", last)
    per_byte, byte_unit = scale("B", max(float(held.max(initial=0)) for _, held in shown.values()))
    look, data, legend = looks(list(shown), set()), list[dict[str, Any]](), list[LegendEntry]()
    for name, (time, held) in shown.items():
        at, height = visible(time, held, COLUMNS)
        data.append({
            "type": "scatter", "mode": "lines", "legendgroup": name,
            "line": {"color": look[name].colour, "shape": "hv", "width": 1.6}, "x": (at / per_time).tolist(),
            "y": (height / per_byte).tolist(),
            **hover([f"<b>{plain(name)}</b>\n{show_bytes(b)} at {show_time(t)}" for t, b in zip(at, height, strict=True)]),
        })  # fmt: skip
        legend.append(LegendEntry(name, look[name].colour))
    if found.capacity is not None:
        data.append({
            "type": "scatter", "mode": "lines", "legendgroup": CAPACITY, "line": {"color": ALARM, "dash": "dash", "width": 1.2},
            "x": [0, last / per_time], "y": [found.capacity / per_byte] * 2, "hoverinfo": "skip",
        })  # fmt: skip
        legend.append(LegendEntry(CAPACITY, ALARM, "dash"))
    layout = {
        "xaxis": {"title": {"text": f"time [{time_unit}]"}},
        "yaxis": {"title": {"text": f"reserved [{byte_unit}]"}, "rangemode": "tozero"},
    }
    left = len(found.curves) - len(shown)
    note = f"Run: {found.run}." + (f" {left} more kinds of {found.what}s are not shown." if left else "")
    return PlotChart(found.question, found.answer, [PlotView("", [PlotPanel("", data, layout)])], legend, note)
