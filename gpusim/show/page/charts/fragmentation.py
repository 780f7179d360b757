"""Four measures of fragmentation per allocator, and reserved against allocated bytes over time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gpusim.base.units import show_bytes
from gpusim.results.result import Result
from gpusim.show.groups import starred
from gpusim.show.moments import axis, rows, timed
from gpusim.show.page.charts.parts import ALARM, INK, LegendEntry, PlotChart, PlotPanel, PlotView, bars_height, hover, plain
from gpusim.show.style import looks
from gpusim.show.values.over_time import levels
from gpusim.show.values.waste import COUNTED, MEASURES, Waste, waste, words
from gpusim.show.view import scale

MOST = 24
COLUMNS = 500  # of pixels, to which curves over time are exact
CAPACITY, PLAN = "capacity", "static plan of the whole program"


def chart(results: Sequence[Result]) -> PlotChart:
    """A panel of bars per measure, then one of curves."""
    found = waste(results, MOST)
    look = looks([r.name for r in found.runs], [r.name for r in found.runs if r.oracle])
    panels = []
    for title, meaning, _ in MEASURES:
        data = [
            {
                "type": "bar", "orientation": "h", "legendgroup": starred(r.name, r.oracle), "cliponaxis": False,
                "y": [plain(starred(r.name, r.oracle))], "x": [(r.measures[title] or 0.0) * (1 if title == COUNTED else 100)],
                "marker": {"color": look[r.name].colour, "pattern": {"shape": "/" if r.ending else ""}},
                "texttemplate": words(title, r.measures[title]), "textposition": "outside", "textfont": {"color": INK},
                "hovertemplate": f"<b>{plain(r.name)}</b><br>{title}: {r.measures[title]!r}"
                f"{'<br>until ' + r.ending if r.ending else ''}<extra></extra>",
            }
            for r in found.runs
        ]  # fmt: skip
        most = max(((r.measures[title] or 0.0) * (1 if title == COUNTED else 100) for r in found.runs), default=1)
        axis_title = meaning if title == COUNTED else f"{meaning} [%]"
        layout = {
            "barmode": "overlay", "bargap": 0.3, "yaxis": {"autorange": "reversed", "automargin": True, "type": "category"},
            "xaxis": {"title": {"text": axis_title}, "range": [0, 1.35 * (most or 1)]},
        }  # fmt: skip
        panels.append(PlotPanel(title, data, layout, bars_height(len(found.runs))))
    curves, levels_of = _over_time(found, {name: one.colour for name, one in look.items()})
    legend = [LegendEntry(starred(r.name, r.oracle), look[r.name].colour, "box") for r in found.runs]
    note = f"{found.note} Below: reserved, and dotted allocated bytes.".strip() if curves else found.note
    panels += curves
    return PlotChart("Which allocator wastes least memory?", found.answer, [PlotView("", panels)], [*legend, *levels_of], note)


def _over_time(found: Waste, colours: dict[str, str]) -> tuple[list[PlotPanel], list[LegendEntry]]:
    """Reserved and allocated bytes of each run, the capacity, and what a static plan takes."""
    known = [(r, w) for r, w in zip(found.shown, found.runs, strict=True) if rows(r)]
    known = [(r, w) for r, w in known if timed(r) == timed(known[0][0])]
    if not known:
        return [], []
    made = [(levels(r, w.name), w) for r, w in known]
    per_time, label = axis([r for r, _ in known], max(run.until for run, _ in made))
    per_byte, unit = scale("B", max(run.highest for run, _ in made))
    data: list[dict[str, Any]] = []
    for run, wasted in made:
        for level, dash, width in (("reserved", "solid", 1.8), ("allocated", "dot", 1.1)):
            time, height = run.seen(level, COLUMNS)
            data.append({
                "type": "scatter", "mode": "lines", "legendgroup": starred(wasted.name, wasted.oracle),
                "x": np.round(time / per_time, 6).tolist(), "y": np.round(height / per_byte, 6).tolist(),
                "line": {"shape": "hv", "dash": dash, "width": width, "color": colours[wasted.name]},
                "hovertemplate": f"<b>{plain(run.name)}</b>, {level}<br>%{{x}}: %{{y}} {unit}<extra></extra>",
            })  # fmt: skip
    end = max(run.until for run, _ in made) / per_time
    entries = []
    for name, of, colour, dash in ((CAPACITY, "capacity", ALARM, "dash"), (PLAN, "plan", INK, "dot")):
        if found_levels := sorted({v for run, _ in made if (v := getattr(run, of)) is not None}):
            entries.append(LegendEntry(name, colour, dash))
        for level in found_levels[:3]:
            data.append({
                "type": "scatter", "mode": "lines", "legendgroup": name, "x": [0, end], "y": [level / per_byte] * 2,
                "line": {"color": colour, "dash": dash, "width": 1.3}, **hover([f"{name}: {show_bytes(level)}"] * 2),
            })  # fmt: skip
    layout = {"xaxis": {"title": {"text": label}}, "yaxis": {"title": {"text": f"memory [{unit}]"}, "rangemode": "tozero"}}
    return [PlotPanel("over time", data, layout, 360)], entries
