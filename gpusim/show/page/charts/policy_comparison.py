"""The compared metric by policy: curves over memory or another number, or bars; and as a ratio to the best of each place."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from gpusim.results.metrics import metric as declared
from gpusim.results.result import Result
from gpusim.show.answer import answer
from gpusim.show.groups import starred
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
    marker,
    plain,
)  # fmt: skip
from gpusim.show.style import BLACK, BLUE, Look, looks
from gpusim.show.values.comparison import PolicyComparison, PolicyLine, PolicyPanel, PolicyPoint, comparison, ratios
from gpusim.show.view import OVERSUBSCRIPTION, POLICIES, Layout, human, kind_of, main_unit, scale

MOST_PANELS = 24
MOST_TICKS = 12
MOST_SHOWN = 12  # curves that are seen at first, the best
LOG_FROM = 6.0  # largest over smallest value from which an axis is logarithmic
NO_LIMIT, ORACLE, BOUND = "no memory limit", "oracle eviction *", "bound: what must come in"
LEVELS = (("no_limit", NO_LIMIT, SOFT, "solid"), ("oracle", ORACLE, BLACK, "dash"), ("bound", BOUND, INK, "dot"))


def chart(results: Sequence[Result], metric: str = "", plan: Layout | None = None) -> PlotChart:
    """Lines, failures, what no policy can beat, and intervals where machines were sampled."""
    found = comparison(results, metric, plan)
    look = _looks(found)
    shown = found.panels[:MOST_PANELS]
    left = f"{len(shown)} of {len(found.panels)} places are shown." if len(shown) < len(found.panels) else ""
    bars = "Bars: p10 to p90 over sampled machines." if any(p.interval for p in found.points) else ""
    draw = _curves if found.plan.across else _bars
    views = [PlotView(declared(found.metric).label, [draw(found, place, look) for place in shown])]
    if len(found.names) > 1:
        best = [_against_best(found, place, look) for place in shown]
        views.append(PlotView("over the best of its place", [panel for panel in best if panel.data]))
    solid = "line" if found.plan.across else "box"
    seen = len(found.names) if solid == "box" else MOST_SHOWN
    legend = [
        LegendEntry(starred(n, n in found.future), look[n].colour, "dash" if look[n].dashed else solid, rank >= seen)
        for rank, n in enumerate(found.names)
    ]
    hidden = f"The {seen} best of {len(found.names)} are shown at first; the legend shows the others." * (len(legend) > seen)
    levels = [LegendEntry(name, colour, {"solid": "line"}.get(dash, dash)) for of, name, colour, dash in LEVELS
              if any(_level(found, place, of) for place in shown)]  # fmt: skip
    return PlotChart(
        question(found.plan, found.metric), answer(results, found.metric), views, [*legend, *levels],
        " ".join(word for word in (left, hidden, bars) if word),
    )  # fmt: skip


def question(plan: Layout, metric: str) -> str:
    """What a comparison asks."""
    verbs = {"slowdown": "loses least", "makespan_ns": "is fastest"}
    what = verbs.get(metric, f"has the best {declared(metric).label}")
    over = {"memory": " as memory shrinks", "memory_share": " as memory shrinks", "": ""}
    return f"Which {kind_of(plan.lines)} {what}{over.get(plan.across, f' over {plan.across}')}?"


def _looks(found: PolicyComparison) -> dict[str, Look]:
    """Machines, programs and combinations of many policies have no colour of their own beside their names in bars."""
    look = looks(found.names, found.future)
    lines = found.plan.lines
    if not found.plan.across and lines and (not set(lines) & set(POLICIES) or len(lines) > 2):
        return {name: replace(Look(BLUE, "o"), dashed=name in found.future) for name in look}
    return look


def _level(found: PolicyComparison, place: PolicyPanel, of: str) -> tuple[tuple[float, float], ...]:
    if not found.references or (of == "oracle" and not found.oracle_apart):
        return ()
    return place.level(of)


# Curves


def _curves(found: PolicyComparison, place: PolicyPanel, look: dict[str, Look]) -> PlotPanel:
    metric = found.metric
    divisor, label = main_unit(metric, max((p.value or 0.0 for p in found.points), default=0.0))
    per_x, across = axis_of(found.plan.across, place.along)
    data: list[dict[str, Any]] = []
    for of, name, colour, dash in LEVELS:
        if level := _level(found, place, of):
            words = [f"{name}: {plain(exact(metric, y))}" for _, y in level]
            data.append({
                "type": "scatter", "mode": "lines", "legendgroup": name, "x": [x / per_x for x, _ in level],
                "y": [y / divisor for _, y in level], "line": {"color": colour, "dash": dash, "width": 1.6}, **hover(words),
            })  # fmt: skip
    for line in place.lines:
        data.append(_curve(line, look[line.name], metric, per_x, divisor, found.plan.across))
    failed = _failures(place.lines, look, per_x, found.plan.across)
    known = [p.value / divisor for line in place.lines for p in line.points if p.value]
    rows = max((int(mark["y"][0]) for mark in failed), default=-1) + 1
    band = min(0.3, 0.035 + 0.035 * rows) if rows else 0.0
    layout = {"xaxis": across, "yaxis": _vertical(label, known, band), **({"yaxis2": _band(rows, band)} if rows else {})}
    return PlotPanel(place.name, [*data, *failed], layout)


def _curve(line: PolicyLine, look: Look, metric: str, per_x: float, divisor: float, across: str) -> dict[str, Any]:
    points = [p for p in line.points if p.value is not None]
    words = [_words(line, p, metric, across) for p in points]
    bars = [_bar(p.interval, p.value, divisor) for p in points]
    return {
        "type": "scatter", "mode": "lines+markers", "name": plain(line.name), "legendgroup": starred(line.name, line.oracle),
        "x": [p.x / per_x for p in points], "y": [(p.value or 0.0) / divisor for p in points], "marker": marker(look),
        "line": {"color": look.colour, "width": 2, "dash": "dash" if look.dashed else "solid"},
        **({"error_y": _errors(bars, look)} if any(bars) else {}), **hover(words),
    }  # fmt: skip


def _words(line: PolicyLine, point: PolicyPoint, metric: str, across: str) -> str:
    """Everything that is known of one point."""
    said = [f"<b>{plain(starred(line.name, line.oracle))}</b>{_at(across, point.x)}", plain(exact(metric, point.value))]
    if point.interval:
        said.append(f"p10 to p90: {human(metric, point.interval[0])} to {human(metric, point.interval[1])}")
    if point.low != point.high:
        said.append(f"repetitions: {human(metric, point.low)} to {human(metric, point.high)}")
    if point.bound is not None:
        said.append(f"bound: {human(metric, point.bound)}")
    if point.ending:
        said.append(f"{point.ending} in part")
    return "\n".join(said)


def _at(across: str, x: float) -> str:
    return f" at {coordinate(across, x)}" if across else ""


def _bar(interval: tuple[float, float] | None, value: float | None, divisor: float) -> tuple[float, float] | None:
    """How far an interval reaches below and above a point."""
    if interval is None or value is None:
        return None
    return (value - interval[0]) / divisor, (interval[1] - value) / divisor


def _errors(bars: Sequence[tuple[float, float] | None], look: Look | None = None) -> dict[str, Any]:
    return {
        "type": "data", "symmetric": False, "arrayminus": [b[0] if b else 0 for b in bars],
        "array": [b[1] if b else 0 for b in bars], "color": look.colour if look else INK, "thickness": 1.4, "width": 4,
    }  # fmt: skip


def _failures(lines: Sequence[PolicyLine], look: dict[str, Look], per_x: float, across: str) -> list[dict[str, Any]]:
    """A mark for each run that failed, in the band along the top; those of one position below each other."""
    there: dict[float, int] = {}
    made = []
    for line in lines:
        for point in line.points:
            if point.ending:
                there[point.x] = row = there.get(point.x, -1) + 1
                made.append({
                    "type": "scatter", "mode": "markers", "legendgroup": starred(line.name, line.oracle), "yaxis": "y2",
                    "x": [point.x / per_x], "y": [row], "cliponaxis": False,
                    "marker": {"symbol": "x", "size": 8, "color": look[line.name].colour, "line": {"color": ALARM, "width": 1}},
                    **hover([f"<b>{plain(line.name)}</b>{_at(across, point.x)}\n{point.ending}"]),
                })  # fmt: skip
    return made


def axis_of(key: str, values: Sequence[float]) -> tuple[float, dict[str, Any]]:
    """What values along an axis are divided by, and the axis."""
    divisor, title, suffix = 1.0, key.replace("_", " "), ""
    if key in ("memory", "host_memory", "host_capacity"):
        divisor, unit = scale("B", max(values, default=1.0))
        title = f"{'device' if key == 'memory' else 'host'} memory [{unit}]"
    elif key == OVERSUBSCRIPTION:
        title, suffix = "oversubscription: what the program needs over device memory", "×"
    elif key == "memory_share":
        divisor, title, suffix = 0.01, "device memory, share of what the program needs at its peak", " %"
    ticks = [v / divisor for v in values]
    rising = [t for t in ticks if t > 0]
    wide = len(rising) == len(ticks) and rising and max(rising) / min(rising) > LOG_FROM
    apart = _apart(ticks, bool(wide))
    shown = {"tickvals": apart, "ticktext": [f"{t:,.4g}{suffix}" for t in apart]} if len(apart) <= MOST_TICKS else {}
    return divisor, {"title": {"text": title}, **({"type": "log"} if wide else {}), **shown}


def _apart(ticks: Sequence[float], logarithmic: bool) -> list[float]:
    """Those that leave room for their labels; the first and the last do."""
    rising = sorted(set(ticks))
    where = [math.log(t) for t in rising] if logarithmic else rising
    kept = rising[:1]
    for tick, at in zip(rising[1:-1], where[1:-1], strict=True):
        if min(at - where[rising.index(kept[-1])], where[-1] - at) >= (where[-1] - where[0]) / MOST_TICKS:
            kept.append(tick)
    return [*kept, *rising[-1:]] if len(rising) > 1 else kept


def coordinate(key: str, value: float) -> str:
    """A value along an axis, in words: "60 % memory", "4 GiB", "1.5×"."""
    _, axis = axis_of(key, [value])
    unit = str(axis["title"]["text"]).partition("[")[2].rstrip("]")
    return f"{axis['ticktext'][0]} {unit}".strip() + (" memory" if key.startswith("memory") else "")


def _vertical(label: str, known: Sequence[float], band: float) -> dict[str, Any]:
    wide = bool(known) and min(known) > 0 and max(known) / min(known) > LOG_FROM
    axis = {"title": {"text": label}, "domain": [0, 1 - 1.2 * band], **({"type": "log"} if wide else {})}
    return axis if known else {**axis, "showticklabels": False, "range": [0, 1]}


def _band(rows: int, band: float) -> dict[str, Any]:
    """The axis of marks of failed runs, along the top."""
    return {
        "domain": [1 - band, 1], "range": [rows - 0.4, -0.6], "fixedrange": True, "showgrid": False, "zeroline": False,
        "ticks": "", "tickvals": [(rows - 1) / 2], "ticktext": ["failed"], "tickfont": {"color": ALARM},
    }  # fmt: skip


# Bars


def _bars(found: PolicyComparison, place: PolicyPanel, look: dict[str, Look]) -> PlotPanel:
    metric = found.metric
    divisor, label = main_unit(metric, max((p.value or 0.0 for p in found.points), default=0.0))
    data = []
    for line in place.lines:
        point, colour = line.points[0], look[line.name]
        told = f"✕ {point.ending or 'not measured'}"
        if point.value is not None:
            told = human(metric, point.value) + (f" ({point.ending} in part)" if point.ending else "")
        bar = _bar(point.interval, point.value, divisor)
        data.append({
            "type": "bar", "orientation": "h", "legendgroup": starred(line.name, line.oracle),
            "y": [plain(starred(line.name, line.oracle))], "x": [(point.value or 0.0) / divisor],
            "marker": {"color": colour.colour, **({"pattern": {"shape": "/"}} if colour.dashed else {})},
            "texttemplate": plain(told), "textposition": "outside",
            "textfont": {"color": INK if point.value is not None else ALARM}, "cliponaxis": False,
            "hovertext": [_words(line, point, metric, "").replace("\n", "<br>")],
            "hovertemplate": "%{hovertext}<extra></extra>",
            **({"error_x": _errors([bar])} if bar else {}),
        })  # fmt: skip
    for of, name, paint, _ in LEVELS:
        known = [(line, y) for line in place.lines if (y := getattr(line.points[0], of)) is not None]
        if known and _level(found, place, of):
            data.append({
                "type": "scatter", "mode": "markers", "legendgroup": name, "x": [y / divisor for _, y in known],
                "y": [plain(starred(line.name, line.oracle)) for line, _ in known],
                "marker": {"symbol": "line-ns", "size": 16, "line": {"color": paint, "width": 2.4}},
                **hover([f"{name}: {plain(exact(metric, y))}" for _, y in known]),
            })  # fmt: skip
    ends = [v for line in place.lines for v in (line.points[0].value, *(line.points[0].interval or ())) if v]
    layout = {
        "barmode": "overlay", "bargap": 0.3, "yaxis": {"autorange": "reversed", "automargin": True, "type": "category"},
        "xaxis": {"title": {"text": label}, "range": [0, 1.24 * max(ends, default=1.0) / divisor]},  # room for what is written
    }  # fmt: skip
    return PlotPanel(place.name, data, layout, bars_height(len(place.lines)))


# Against the best


def _against_best(found: PolicyComparison, place: PolicyPanel, look: dict[str, Look]) -> PlotPanel:
    """How many times as much as the best of the place: where lines lie on each other, these differences are what is asked."""
    across = found.plan.across
    per_x, axis = axis_of(across, place.along)
    data: list[dict[str, Any]] = []
    oracle = {line.name: line.oracle for line in place.lines}
    against = ratios(place, found.metric)
    for name, line in against.items():
        points = [p for p in line if p.value is not None]
        words = [
            f"<b>{plain(starred(name, oracle[name]))}</b>{_at(across, p.x)}\n{p.value:.4f}× the best of its place"
            + (f"\np10 to p90: {p.interval[0]:.3f}× to {p.interval[1]:.3f}×" if p.interval else "")
            for p in points
        ]
        bars = [_bar(p.interval, p.value, 1.0) for p in points]
        along: list[Any] = [p.x / per_x if across else plain(name) for p in points]
        values = [p.value for p in points]
        data.append({
            "type": "scatter", "mode": "lines+markers" if across else "markers",
            "legendgroup": starred(name, oracle[name]), "marker": marker(look[name], 9),
            "line": {"color": look[name].colour, "width": 1, "dash": "dot"}, **hover(words),
            **({"x": along, "y": values} if across else {"x": values, "y": along}),
            **({"error_y" if across else "error_x": _errors(bars, look[name])} if any(bars) else {}),
        })  # fmt: skip
    high = max((p.value or 0.0 for line in against.values() for p in line), default=1.0)
    ratio_axis: dict[str, Any] = {"title": {"text": "over the best [×]"}, **({"type": "log"} if high > LOG_FROM else {})}
    names = {"autorange": "reversed", "automargin": True, "type": "category"}
    layout = {"xaxis": axis, "yaxis": ratio_axis} if across else {"xaxis": ratio_axis, "yaxis": names}
    return PlotPanel(place.name, data, layout, 320 if across else bars_height(len(place.lines)))
