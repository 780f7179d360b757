"""Pages faulted on, brought ahead and evicted under unified memory, over time and address."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gpusim.base.units import show_bytes
from gpusim.results.faults import FaultReport
from gpusim.results.result import Result
from gpusim.show.faults import brief
from gpusim.show.groups import starred
from gpusim.show.page.charts.parts import SOFT, LegendEntry, PlotChart, PlotPanel, PlotView, plain
from gpusim.show.style import BLACK, GREEN, SKY, VERMILION
from gpusim.show.values.page_cells import DONE, cells
from gpusim.show.view import pick, run_name, scale, varying

MOST = 9
COLOURS = dict(zip(DONE, (VERMILION, SKY, BLACK, GREEN), strict=True))
HELD = "in GPU memory"


def chart(results: Sequence[Result]) -> PlotChart:
    """One map per run; what happened is a layer per kind, so that each can be hidden."""
    shown, note = pick([r for r in results if r.faults is not None and r.faults.picture is not None], MOST)
    keys = varying(shown)
    panels = []
    for run in shown:
        assert run.faults is not None
        panels.append(_map(run.faults, starred(run_name(run, keys, "unified"), run.oracle) if len(shown) > 1 else ""))
    first = shown[0] if len(shown) == 1 else None
    said = brief(first.faults, first.bounds.get("bound_no_limit_ns")) if first and first.faults else ""
    legend = [*(LegendEntry(name, colour, "box") for name, colour in COLOURS.items()), LegendEntry(HELD, SOFT, "box")]
    about = f"{note} A cell has the colour of what most of its pages did.".strip()
    return PlotChart("Where do pages come and go?", said, [PlotView("", panels)], legend, about)


def _map(report: FaultReport, name: str) -> PlotPanel:
    picture = report.picture
    assert picture is not None
    kind = cells(picture)
    per_time, time_unit = scale("ns", report.makespan_ns)
    top = kind.shape[0] * picture.row_bytes
    per_byte, byte_unit = scale("B", top)
    where = {
        "type": "heatmap", "showscale": False, "x0": picture.column_ns / 2 / per_time, "dx": picture.column_ns / per_time,
        "y0": picture.row_bytes / 2 / per_byte, "dy": picture.row_bytes / per_byte, "zmin": 0, "zmax": 1, "hoverongaps": False,
    }  # fmt: skip
    tells = f"<br>%{{x:.4f}} {time_unit}, %{{y:.4f}} {byte_unit}<extra></extra>"
    held = np.round(picture.resident, 3)
    data: list[dict[str, Any]] = [{
        **where, "legendgroup": HELD, "z": [[v or None for v in row] for row in held.tolist()],
        "colorscale": [[0, "rgba(138,143,153,0)"], [1, "rgba(138,143,153,0.42)"]],
        "hovertemplate": f"{HELD}: %{{z:.0%}}{tells}",
    }]  # fmt: skip
    for number, (label, colour) in enumerate(COLOURS.items()):
        there = kind == number
        if there.any():
            data.append({
                **where, "legendgroup": label, "z": [[1 if v else None for v in row] for row in there.tolist()],
                "colorscale": [[0, colour], [1, colour]], "hovertemplate": f"{label}{tells}",
            })  # fmt: skip
    between = [{"type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": a.first / per_byte, "y1": a.first / per_byte,
                "line": {"color": SOFT, "width": 0.6}} for a in report.allocations]  # fmt: skip
    names = [{"xref": "paper", "x": 1, "xanchor": "right", "y": (a.first + a.bytes / 2) / per_byte, "showarrow": False,
              "text": f"{plain(a.name)} {show_bytes(a.bytes)}", "font": {"size": 11}}
             for a in report.allocations if a.bytes > 0.04 * top]  # fmt: skip
    layout = {
        "xaxis": {"title": {"text": f"time [{time_unit}]"}}, "yaxis": {"title": {"text": f"address [{byte_unit}]"}},
        "shapes": between, "annotations": names,
    }  # fmt: skip
    return PlotPanel(name, data, layout, 400)
