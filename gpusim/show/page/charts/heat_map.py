"""The metric by two axes at once, a cell per combination; the best of each column is framed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import matplotlib
from matplotlib.colors import to_hex

from gpusim.results.metrics import metric as declared
from gpusim.results.result import Result
from gpusim.show.answer import answer
from gpusim.show.groups import starred
from gpusim.show.page.charts.parts import ALARM, INK, PlotChart, PlotPanel, PlotView, bars_height, exact, plain
from gpusim.show.values.heat import HeatCell, HeatMap, HeatPanel, heat, label_of
from gpusim.show.view import human

MOST_PANELS = 24
FAR = 6.0  # largest over smallest value from which colours are logarithmic
SCALE = [[i / 8, to_hex(matplotlib.colormaps["cividis_r"](i / 8))] for i in range(9)]  # light is little


def chart(results: Sequence[Result]) -> PlotChart:
    """Memory or another number along the columns, policies down the rows."""
    found = heat(results)
    shown = found.panels[:MOST_PANELS]
    left = f"{len(shown)} of {len(found.panels)} places are shown. " if len(shown) < len(found.panels) else ""
    note = f"{left}A frame marks the best of its column; ✕ did not finish. Colours are of each place alone."
    what = declared(found.metric).label.capitalize()
    title = f"{what} by {label_of(found.down) or 'policy'} and {label_of(found.across)}"
    return PlotChart(title, answer(results, found.metric), [PlotView("", [_panel(found, one) for one in shown])], note=note)


def _panel(found: HeatMap, place: HeatPanel) -> PlotPanel:
    oracle = [any(c and c.oracle for c in row) for row in place.cells]
    names = [plain(starred(name, future)) for name, future in zip(found.rows, oracle, strict=True)]
    columns = [plain(column) for column in found.columns]
    known = [c.value for row in place.cells for c in row if c and c.value is not None]
    far = bool(known) and min(known) > 0 and max(known) / min(known) > FAR
    height = [
        [None if c is None or c.value is None else math.log(c.value) if far else c.value for c in row] for row in place.cells
    ]
    words = [
        [_words(found, name, column, cell) for column, cell in zip(columns, row, strict=True)]
        for name, row in zip(names, place.cells, strict=True)
    ]
    data: list[dict[str, Any]] = [{
        "type": "heatmap", "x": columns, "y": names, "z": height, "text": words, "hovertemplate": "%{text}<extra></extra>",
        "showscale": False, "xgap": 2, "ygap": 2, "colorscale": SCALE, "hoverongaps": False,
    }]  # fmt: skip
    middle = (min(known) + max(known)) / 2 if known else 0.0
    notes = [
        {"x": column, "y": name, "text": human(found.metric, cell.value) if cell.value is not None else "✕", "showarrow": False,
         "font": {"size": 11, "color": ALARM if cell.value is None else "#ffffff" if cell.value > middle else "#101318"}}
        for name, row in zip(names, place.cells, strict=True) for column, cell in zip(columns, row, strict=True) if cell
    ]  # fmt: skip
    frames = [
        {"type": "rect", "x0": i - 0.5, "x1": i + 0.5, "y0": row - 0.5, "y1": row + 0.5, "line": {"color": INK, "width": 2}}
        for i, row in enumerate(place.best) if row is not None
    ]  # fmt: skip
    layout = {
        "xaxis": {"type": "category", "title": {"text": label_of(found.across)}, "showgrid": False},
        "yaxis": {"type": "category", "autorange": "reversed", "automargin": True, "showgrid": False},
        "annotations": notes if len(notes) <= 400 else [], "shapes": frames,
    }  # fmt: skip
    return PlotPanel(place.name, data, layout, bars_height(round(1.25 * len(names))))


def _words(found: HeatMap, row: str, column: str, cell: HeatCell | None) -> str:
    if cell is None:
        return ""
    said = f"<b>{row}</b> at {column}<br>{plain(exact(found.metric, cell.value)) if cell.value is not None else cell.ending}"
    if cell.interval:
        said += f"<br>p10 to p90: {human(found.metric, cell.interval[0])} to {human(found.metric, cell.interval[1])}"
    return said
