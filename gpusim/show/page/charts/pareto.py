"""Memory held against time: every run a point, and the front of those that no other beats in both."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gpusim.base.text import join
from gpusim.results.result import Result
from gpusim.show.groups import starred
from gpusim.show.page.charts.parts import INK, SOFT, LegendEntry, PlotChart, PlotPanel, PlotView, exact, hover, marker, plain
from gpusim.show.style import BLACK, Look, looks
from gpusim.show.values.pareto import ParetoFronts, ParetoPanel, ParetoPoint, answer, pareto
from gpusim.show.view import human, main_unit, scale

MOST_PANELS, MOST_LINES = 24, 24
FRONT, BOUND = "front: beaten by none in both", "bound: what must come in"
FAR = 6.0  # largest over smallest value from which an axis is logarithmic
OTHERS = "runs"


def chart(results: Sequence[Result]) -> PlotChart:
    """A panel per machine and program; oracles stand in no front."""
    found = pareto(results)
    panels = [panel for panel in found.panels if panel.points]
    shown = panels[:MOST_PANELS]
    told = len(found.lines) <= MOST_LINES
    future = {p.line for panel in shown for p in panel.points if p.oracle}
    look = looks(found.lines, future) if told else {}
    legend = [LegendEntry(OTHERS, SOFT, "box")]
    if told:
        legend = [LegendEntry(starred(n, n in future), look[n].colour, "dot" if n in future else "box") for n in found.lines]
    legend.append(LegendEntry(FRONT, INK))
    if any(len(panel.bound) > 1 for panel in shown):
        legend.append(LegendEntry(BOUND, BLACK, "dot"))
    failed: dict[str, int] = {}
    for panel in shown:
        for how, count in panel.failed.items():
            failed[how] = failed.get(how, 0) + count
    note = f"{len(shown)} of {len(panels)} places are shown. " if len(shown) < len(panels) else ""
    note += f"Did not finish: {join([f'{count} {how}' for how, count in failed.items()])}." if failed else ""
    views = [PlotView("", [_panel(found, panel, look) for panel in shown])]
    return PlotChart("What does less memory cost?", answer(found), views, legend, note.strip())


def _panel(found: ParetoFronts, place: ParetoPanel, look: dict[str, Look]) -> PlotPanel:
    metric, points = found.metric, place.points
    divisor, label = main_unit(metric, max(p.value for p in points))
    per_byte, unit = scale("B", max(p.memory or 0.0 for p in points))
    best = [((p.memory or 0.0) / per_byte, p.value / divisor) for p in place.front]
    data: list[dict[str, Any]] = [_steps(FRONT, INK, "solid", best)]
    if len(place.bound) > 1:
        data.append(_steps(BOUND, BLACK, "dot", [(m / per_byte, b / divisor) for m, b in place.bound]))
    for line in dict.fromkeys(p.line for p in points):
        mine = [p for p in points if p.line == line]
        bars = [p.interval for p in mine]
        data.append({
            "type": "scatter", "mode": "markers", "x": [(p.memory or 0.0) / per_byte for p in mine],
            "legendgroup": starred(line, mine[0].oracle) if look else OTHERS, "y": [p.value / divisor for p in mine],
            "marker": {**marker(look.get(line, Look(SOFT, "o"))), "opacity": [1.0 if p in place.front else 0.55 for p in mine]},
            **({"error_y": {
                "type": "data", "symmetric": False, "thickness": 1.2, "width": 3,
                "arrayminus": [(p.value - b[0]) / divisor if b else 0 for p, b in zip(mine, bars, strict=True)],
                "array": [(b[1] - p.value) / divisor if b else 0 for p, b in zip(mine, bars, strict=True)],
            }} if any(bars) else {}),
            **hover([_words(p, metric) for p in mine]),
        })  # fmt: skip

    def axis(values: Sequence[float], title: str) -> dict[str, Any]:
        far = min(values) > 0 and max(values) / min(values) > FAR
        return {"title": {"text": title}, **({"type": "log"} if far else {})}

    layout = {
        "xaxis": axis([(p.memory or 0.0) / per_byte for p in points], f"memory held at the peak [{unit}]"),
        "yaxis": axis([p.value / divisor for p in points], label),
    }
    return PlotPanel(place.name, data, layout, 340)


def _steps(name: str, colour: str, dash: str, at: Sequence[tuple[float, float]]) -> dict[str, Any]:
    return {
        "type": "scatter", "mode": "lines", "legendgroup": name, "x": [x for x, _ in at], "y": [y for _, y in at],
        "line": {"color": colour, "dash": dash, "width": 1.4, "shape": "hv"}, "hoverinfo": "skip",
    }  # fmt: skip


def _words(p: ParetoPoint, metric: str) -> str:
    said = [f"<b>{plain(starred(p.line, p.oracle))}</b>{f' at {p.where}' if p.where else ''}", plain(exact(metric, p.value))]
    if p.interval:
        said.append(f"p10 to p90: {human(metric, p.interval[0])} to {human(metric, p.interval[1])}")
    return "\n".join([*said, f"holds {exact('reserved_peak_bytes', p.memory)}"])
