"""Where the time went: kernels, and stalls by cause, per run; what a run without memory limit takes, and the bound."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gpusim.results.result import Result
from gpusim.show.figure.time_breakdown import LOOKS
from gpusim.show.groups import in_order, starred
from gpusim.show.page.charts.parts import (
    ALARM,
    INK,
    SOFT,
    LegendEntry,
    PlotChart,
    PlotPanel,
    PlotView,
    bars_height,
    exact,
    hover,
    plain,
)
from gpusim.show.values.breakdown import Breakdown, answer, breakdown
from gpusim.show.view import ending, pick, run_name, scale, varying

MOST = 60
MARKS = (("no_limit", "no memory limit", SOFT), ("bound", "bound: what must come in", INK))


def chart(results: Sequence[Result]) -> PlotChart:
    """A bar per run in the order of all figures, best first."""
    shown, note = pick(results, MOST)
    keys = varying(shown)
    shown = in_order(shown, results)
    names = [plain(starred(run_name(r, keys), r.oracle)) for r in shown]
    parts = {name: breakdown(r) for name, r in zip(names, shown, strict=True) if r.finished}
    divisor, unit = scale("ns", max((one.total for one in parts.values()), default=1.0))
    data: list[dict[str, Any]] = []
    for label, (colour, hatch) in LOOKS.items():
        if not any(one.parts[label] > 0 for one in parts.values()):
            continue
        data.append({
            "type": "bar", "orientation": "h", "legendgroup": label, "y": list(parts), "textposition": "none",
            "x": [one.parts[label] / divisor for one in parts.values()],
            "marker": {"color": colour, "pattern": {"shape": hatch[:1], "solidity": 0.15, "fillmode": "overlay"}},
            **hover([_words(name, label, one) for name, one in parts.items()]),
        })  # fmt: skip
    for of, label, colour in MARKS:
        known = [(name, v) for name, one in parts.items() if (v := getattr(one, of)) is not None]
        if known:
            data.append({
                "type": "scatter", "mode": "markers", "legendgroup": label, "y": [name for name, _ in known],
                "x": [v / divisor for _, v in known],
                "marker": {"symbol": "line-ns", "size": 18, "line": {"color": colour, "width": 2.4}},
                **hover([f"{label}: {exact('makespan_ns', v)}" for _, v in known]),
            })  # fmt: skip
    data += _intervals(parts, divisor)
    failed = [(name, ending(r)) for name, r in zip(names, shown, strict=True) if not r.finished]
    data += [{
        "type": "scatter", "mode": "markers+text", "y": [name], "x": [0], "text": [how], "textposition": "middle right",
        "textfont": {"color": ALARM}, "marker": {"symbol": "x", "color": ALARM, "size": 8}, "cliponaxis": False,
        "hovertemplate": f"<b>{name}</b><br>{how}<extra></extra>",
    } for name, how in failed]  # fmt: skip
    layout = {
        "barmode": "stack", "bargap": 0.3, "xaxis": {"title": {"text": f"time [{unit}]"}, "rangemode": "tozero"},
        "yaxis": {"automargin": True, "type": "category", "categoryorder": "array", "categoryarray": names[::-1]},
    }  # fmt: skip
    used = {trace.get("legendgroup") for trace in data}
    legend = [LegendEntry(label, colour, "box") for label, (colour, _) in LOOKS.items() if label in used]
    legend += [LegendEntry(label, colour, "line") for _, label, colour in MARKS if label in used]
    panel = PlotPanel("", data, layout, bars_height(len(names)))
    return PlotChart("Where does the time go?", answer(shown, keys), [PlotView("", [panel])], legend, note)


def _words(name: str, label: str, one: Breakdown) -> str:
    share = f", {100 * one.parts[label] / one.total:.2f} %" if one.total else ""
    return f"<b>{name}</b>\n{label}: {exact('stall_ns', one.parts[label])}{share}\nof {exact('makespan_ns', one.total)}"


def _intervals(parts: dict[str, Breakdown], divisor: float) -> list[dict[str, Any]]:
    """p10 to p90 of the makespan, at the end of each bar."""
    known = {name: (one.total, one.interval) for name, one in parts.items() if one.interval}
    if not known:
        return []
    return [{
        "type": "scatter", "mode": "markers", "y": list(known), "x": [total / divisor for total, _ in known.values()],
        "marker": {"size": 0.1, "color": INK}, **hover([f"p10 to p90: {exact('makespan_ns', bars[0])} to "
        f"{exact('makespan_ns', bars[1])}" for _, bars in known.values()]),
        "error_x": {"type": "data", "symmetric": False, "color": INK, "thickness": 1.2,
                    "arrayminus": [(total - bars[0]) / divisor for total, bars in known.values()],
                    "array": [(bars[1] - total) / divisor for total, bars in known.values()]},
    }]  # fmt: skip
