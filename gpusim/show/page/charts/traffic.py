"""Bytes moved per direction, against the least that must come in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gpusim.base.units import show_bytes
from gpusim.results.result import Result
from gpusim.show.groups import starred
from gpusim.show.page.charts.parts import INK, LegendEntry, PlotChart, PlotPanel, PlotView, bars_height, exact, hover, plain
from gpusim.show.style import BLUE, ORANGE
from gpusim.show.values.traffic import BOUND, IN, OUT, RunTraffic, traffic
from gpusim.show.view import scale

MOST = 60
CAME, LEFT, LEAST = "host to device", "device to host", "least that must come in"


def chart(results: Sequence[Result]) -> PlotChart:
    """Two bars per run, and the bound as a mark."""
    found = traffic(results, MOST)
    divisor, unit = scale("B", max((max(r.came, r.left, r.least or 0.0) for r in found.runs), default=1.0))
    names = [plain(starred(r.name, r.oracle)) for r in found.runs]
    ways = ((CAME, IN, BLUE, [r.came for r in found.runs]), (LEFT, OUT, ORANGE, [r.left for r in found.runs]))
    data: list[dict[str, Any]] = [
        {
            "type": "bar", "orientation": "h", "legendgroup": label, "y": names, "x": [bytes / divisor for bytes in moved],
            "marker": {"color": colour, "pattern": {"shape": ["/" if r.ending else "" for r in found.runs]}},
            **hover([_words(r, label, metric, bytes) for r, bytes in zip(found.runs, moved, strict=True)]),
            "textposition": "none",
        }
        for label, metric, colour, moved in ways
    ]  # fmt: skip
    known = [(name, r.least) for name, r in zip(names, found.runs, strict=True) if r.least is not None]
    if known:
        data.append({
            "type": "scatter", "mode": "markers", "legendgroup": LEAST, "y": [name for name, _ in known],
            "x": [least / divisor for _, least in known],
            "marker": {"symbol": "line-ns", "size": 16, "line": {"color": INK, "width": 2.6}},
            **hover([f"{LEAST}: {exact(BOUND, least)}" for _, least in known]),
        })  # fmt: skip
    layout = {
        "barmode": "group", "bargap": 0.25,
        "xaxis": {"title": {"text": f"moved over the link [{unit}]"}, "rangemode": "tozero"},
        "yaxis": {"autorange": "reversed", "automargin": True, "type": "category"},
    }  # fmt: skip
    legend = [LegendEntry(CAME, BLUE, "box"), LegendEntry(LEFT, ORANGE, "box")]
    legend += [LegendEntry(LEAST, INK)] if known else []
    stopped = "Hatched: until the run stopped." if any(r.ending for r in found.runs) else ""
    note = " ".join(word for word in (found.note, stopped) if word)
    panel = PlotPanel("", data, layout, bars_height(round(1.4 * len(names))))
    return PlotChart("How much is moved, and how much is needed?", found.answer, [PlotView("", [panel])], legend, note)


def _words(run: RunTraffic, label: str, metric: str, moved: float) -> str:
    until = f"\nuntil {run.ending}" if run.ending else ""
    least = f"\nleast that must come in: {show_bytes(run.least)}" if metric == IN and run.least is not None else ""
    return f"<b>{plain(run.name)}</b>\n{label}: {exact(metric, moved)}{least}{until}"
