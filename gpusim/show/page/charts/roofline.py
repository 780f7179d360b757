"""The operators of a program under the arithmetic and the bandwidth of the machine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gpusim.base.units import show_bytes, show_fraction, show_time
from gpusim.show.page.charts.parts import INK, LegendEntry, PlotChart, PlotPanel, PlotView, hover, plain
from gpusim.show.style import BLUE, ORANGE, VERMILION
from gpusim.show.values.roofline import Roofline, RooflinePoint, answer

COLOURS = {"compute": VERMILION, "memory": BLUE, "launch": ORANGE}
NOMINAL, REACHED = "the vendor's number", "what kernels reach"
MOST = 300  # operators of a panel


def chart(found: Sequence[Roofline]) -> PlotChart:
    """Of each program on a machine operators that compute, and those that only move bytes; area is the share of time."""
    panels = []
    for one in found:
        where = f"{one.program} on {one.machine}"
        for with_flops, title in ((True, "operators with flops"), (False, "operators without flops")):
            points = one.of_flops(with_flops=with_flops)[:MOST]
            if points:
                panels.append(_panel(one, points, f"{where}: {title}", with_flops))
    used = {p.bound for one in found for p in one.points}
    legend = [LegendEntry(f"bound by {name}", colour, "box") for name, colour in COLOURS.items() if name in used]
    legend += [LegendEntry(NOMINAL, INK), LegendEntry(REACHED, INK, "dash")]
    note = "An area is a share of the time; a bar the interval of the time. A point above memory's roof is served by a cache."
    return PlotChart("What binds the operators of the program?", answer(found), [PlotView("", panels)], legend, note)


def _panel(one: Roofline, points: Sequence[RooflinePoint], title: str, with_flops: bool) -> PlotPanel:
    def rate(p: RooflinePoint, ns: float) -> float:
        return (p.flops / 1e12 if with_flops else p.moved / 1e9) / (ns * 1e-9)

    across = [p.flops / p.moved if with_flops else p.moved for p in points]
    data = _roofs(one, min(across) / 3, max(across) * 3, with_flops)
    for bound, colour in COLOURS.items():
        mine = [(x, p) for x, p in zip(across, points, strict=True) if p.bound == bound]
        if mine:
            data.append({
                "type": "scatter", "mode": "markers", "legendgroup": f"bound by {bound}", "x": [x for x, _ in mine],
                "y": [rate(p, p.ns) for _, p in mine],
                "marker": {"color": colour, "opacity": 0.7, "size": [6 + 60 * p.share**0.5 for _, p in mine]},
                "error_y": {"type": "data", "symmetric": False, "thickness": 0.8, "width": 0,
                            "array": [rate(p, p.low) - rate(p, p.ns) for _, p in mine],
                            "arrayminus": [rate(p, p.ns) - rate(p, p.high) for _, p in mine]},
                **hover([_words(p) for _, p in mine]),
            })  # fmt: skip
    layout = {
        "xaxis": {"type": "log", "title": {"text": "flop per byte of its tensors" if with_flops else "bytes of its tensors"}},
        "yaxis": {"type": "log", "title": {"text": "TFLOP/s" if with_flops else "GB/s"}},
    }
    return PlotPanel(title, data, layout, 380)


def _roofs(one: Roofline, low: float, high: float, with_flops: bool) -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = []
    for name, rates, bandwidth, dash in (
        (NOMINAL, one.peak, one.bandwidth, "solid"), (REACHED, one.achieved, one.achieved_bandwidth, "dash")
    ):  # fmt: skip
        lines = [("memory", [low, high], [bandwidth / 1e9] * 2)]
        if with_flops:
            top = max(rates.values(), default=0.0)
            lines = [("memory", [low, top / bandwidth], [low * bandwidth / 1e12, top / 1e12])]
            lines += [(of, [peak / bandwidth, max(high, 8 * top / bandwidth)], [peak / 1e12] * 2) for of, peak in rates.items()]
        made += [{
            "type": "scatter", "mode": "lines", "legendgroup": name, "x": x, "y": y,
            "line": {"color": INK, "width": 1.3, "dash": dash}, **hover([f"{of}: {name}"] * 2),
        } for of, x, y in lines]  # fmt: skip
    return made


def _words(p: RooflinePoint) -> str:
    rate = f"{p.flops / p.ns / 1e3:,.4g} TFLOP/s" if p.flops else f"{p.moved / p.ns:,.4g} GB/s"
    took = f"{p.count:,} times {show_time(p.ns, 4)} ({show_time(p.low)} to {show_time(p.high)})"
    share = f"{show_fraction(p.share)} of the time, bound by {p.bound}"
    how = f" computed in {p.computed}" * (p.flops > 0)
    return f"<b>{plain(p.name)}</b> {plain(p.dtype)}{how}\n{took}\n{rate}, {show_bytes(p.moved, 4)}\n{share}"
