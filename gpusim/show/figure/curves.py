"""A metric over a number, one line per policy."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, MaxNLocator, NullLocator

from gpusim.results.metrics import metric as declared
from gpusim.show.groups import starred
from gpusim.show.panels import entitle, failed_band, grid, legend, shape
from gpusim.show.style import BLACK, INK, SOFT, Look, canvas, looks
from gpusim.show.values.comparison import PolicyComparison, PolicyPanel, PolicyPoint
from gpusim.show.view import ORACLE, OVERSUBSCRIPTION, kind_of, main_unit, scale

MOST_TICKS = 8
CROWDED = 0.07  # gaps of less than this share of the axis are too narrow for a label each
LOG_FROM = 6.0  # largest over smallest value from which the axis is logarithmic


def curves(compared: PolicyComparison, logarithmic: bool = False) -> Figure:
    """One panel per entry; a ratio or rate has one scale in all panels, a time or size its own in each.

    logarithmic  in any case, not only where values lie far apart
    """
    panels, metric, across = compared.panels, compared.metric, compared.plan.across
    look = looks(compared.names, compared.future)
    figure = canvas(shape(len(panels))[0])
    shared = declared(metric).unit in ("1", "1/s") or len(panels) == 1
    axes = grid(figure, len(panels), sharey=shared, sharex=one_axis(panels))
    found = [p.value for p in compared.points if p.value is not None]
    divisor, label = main_unit(metric, max(found, default=0.0))
    logarithmic = bool(found) and min(found) > 0 and (logarithmic or max(found) / min(found) > LOG_FROM)
    where = positions({p.x for p in compared.points})
    handles: dict[str, Line2D] = {}
    bound: dict[str, Line2D] = {}
    marks: list[list[tuple[float, str, Look]]] = []
    for panel, shown in zip(axes, panels, strict=True):
        entitle(panel, shown.name, len(panels))
        marks.append([(where[p.x], line.name, look[line.name]) for line in shown.lines for p in line.points if p.ending])
        there = {line.name: line for line in shown.lines}
        for rank, name in enumerate(compared.names):
            points = there[name].points if name in there else ()
            line = _line(panel, name, points, where, divisor, look[name], rank / max(1, len(compared.names) - 1))
            line.set_label(starred(name, name in compared.future))
            handles.setdefault(name, line)
            if not compared.references and (own := _own_bound(panel, name, points, where, divisor, look[name])):
                bound["bound"] = own
        # Where nothing finishes there is no scale for references.
        if compared.references and any(p.value is not None for line in shown.lines for p in line.points):
            bound |= references(panel, shown, where, divisor, oracle=compared.oracle_apart)
        axis_across(panel, across, {where[x]: x for x in shown.along}, shape(len(panels))[1])
    for group, failed in [(axes, marks)] if shared else [([a], [m]) for a, m in zip(axes, marks, strict=True)]:
        _limits(group, metric, logarithmic)
        if any(failed):
            failed_band(group, failed, _failed_label(compared))
    _outer_labels(axes, label)
    title = kind_of(compared.plan.lines) + ("\nbars: p10 to p90" if any(p.interval for p in compared.points) else "")
    legend(axes, [*handles.values(), *bound.values()], title, bool(compared.future) or ORACLE in bound)
    return figure


def _line(
    panel: Axes, name: str, points: Sequence[PolicyPoint], where: Mapping[float, float], divisor: float, look: Look, rank: float
) -> Line2D:
    """A line with the extremes of repetitions as a band and p10 to p90 over sampled machines as bars.

    Later lines are thinner with smaller markers, so that lines in a tie remain visible below each other.
    """
    known = [(where[p.x], p) for p in points if p.value is not None]
    (line,) = panel.plot(
        [x for x, _ in known], [p.value / divisor for _, p in known if p.value is not None], look.line, color=look.colour,
        marker=look.marker, lw=2.4 - 1.1 * rank, ms=(8.5 - 3.5 * rank) * look.grow, mec="white", mew=0.5, gid=f"line:{name}",
        clip_on=False, zorder=3,
    )  # fmt: skip
    line.set_in_layout(bool(known))  # a line without points would be laid out at the figure's corner
    ends = [(x, p.low / divisor, p.high / divisor) for x, p in known if p.low is not None and p.high is not None]
    if any(high > low for _, low, high in ends):
        at, lows, highs = zip(*ends, strict=True)
        panel.fill_between(at, lows, highs, color=look.colour, alpha=0.18, lw=0, gid=f"repetitions:{name}")
    bars = [(x, p.interval[0] / divisor, p.interval[1] / divisor) for x, p in known if p.interval]
    if bars:
        panel.vlines(*zip(*bars, strict=True), color=look.colour, lw=1.4, alpha=0.7, gid=f"interval:{name}")
    return line


def _own_bound(
    panel: Axes, name: str, points: Sequence[PolicyPoint], where: Mapping[float, float], divisor: float, look: Look
) -> Line2D | None:
    """What a line cannot beat, in its colour, where lines have no common bound; the handle for all of them."""
    found = [(where[p.x], p.bound / divisor) for p in points if p.bound is not None and p.value is not None]
    if len(found) < 2:
        return None
    panel.plot(*zip(*found, strict=True), ":", color=look.colour, lw=1.3, gid=f"bound:{name}", zorder=2)
    return Line2D([], [], ls=":", color=SOFT, lw=1.3, label="bound: what must come in")


def references(
    panel: Axes, shown: PolicyPanel, where: Mapping[float, float], divisor: float, *, oracle: bool
) -> dict[str, Line2D]:
    """The run without a memory limit as a level, oracle eviction dashed, the bound dotted; the handles of the last two."""
    made: dict[str, Line2D] = {}
    if free := shown.level("no_limit"):
        floor = min(height for _, height in free) / divisor
        panel.axhline(floor, color=SOFT, lw=0.9, zorder=1, gid="bound:no limit")
        panel.annotate("no memory limit", (1, floor), (-2, -3), ha="right", va="top", color=SOFT, fontsize=8,
                       xycoords=panel.get_yaxis_transform(), textcoords="offset points")  # fmt: skip
    levels = (("oracle", "--", BLACK, 1.1, f"oracle eviction {ORACLE}"), ("bound", ":", INK, 1.4, "bound: what must come in"))
    for of, dashes, colour, width, label in levels:
        found = shown.level(of)
        if not found or (of == "oracle" and not oracle) or (of == "bound" and len(found) < 2):
            continue
        x, y = zip(*((where[x], y / divisor) for x, y in found), strict=True)
        gid = "bound:least" if of == "bound" else "bound:oracle"
        (made[of],) = panel.plot(x, y, dashes, color=colour, lw=width, gid=gid, zorder=2, label=label)
    if "oracle" in made:
        made[ORACLE] = made.pop("oracle")
    return made


def positions(values: set[float]) -> dict[float, float]:
    """Where each value stands on the axis: to scale, or evenly where labels to scale would lie over each other."""
    rising = sorted(values)
    gaps = [b - a for a, b in itertools.pairwise(rising)]
    if len(rising) <= MOST_TICKS and gaps and min(gaps) < CROWDED * (rising[-1] - rising[0]):
        return {v: float(i) for i, v in enumerate(rising)}
    return {v: v for v in rising}


def _apart(positions: list[float], columns: int) -> list[float]:
    """Those that leave room for their labels on panels of which so many stand side by side; the first and the last do."""
    least = CROWDED * (1 + columns) / 2 * (positions[-1] - positions[0])
    kept = positions[:1]
    for x in positions[1:-1]:
        if x - kept[-1] >= least and positions[-1] - x >= least:
            kept.append(x)
    return [*kept, *positions[-1:]] if len(positions) > 1 else kept


def axis_across(panel: Axes, key: str, values: dict[float, float], columns: int) -> None:
    """The horizontal axis: position -> value; with a tick at each value while they are few."""
    rising = sorted(values)
    divisor: float = 1
    if key in ("memory", "host_memory", "host_capacity"):
        divisor, unit = scale("B", max(values.values()))
        label, form = f"{'device' if key == 'memory' else 'host'} memory [{unit}]", "{:.4g}"
    elif key == OVERSUBSCRIPTION:
        label, form = "oversubscription, what the program needs over device memory", "{:.3g}×"
    elif key == "memory_share":
        divisor, label, form = 0.01, "device memory, share of what the program needs at its peak", "{:.4g} %"
    else:
        label, form = key.replace("_", " "), "{:,.6g}"
    if any(x != v for x, v in values.items()):
        label += "  (not to scale)"
    panel.set_xlabel(label)
    panel.xaxis.set_major_formatter(FuncFormatter(lambda x, _: form.format(values.get(float(x or 0), float(x or 0)) / divisor)))
    if len(rising) <= MOST_TICKS:
        panel.xaxis.set_major_locator(FixedLocator(_apart(rising, columns)))
    low, high = rising[0], rising[-1]
    pad = 0.09 * (high - low) or 0.5 * abs(high) or 1.0
    panel.set_xlim(low - pad, high + pad)


def _limits(panels: Sequence[Axes], metric: str, logarithmic: bool) -> None:
    """Limits of panels that share them; leaves room below the line of no limit for its name."""
    if not any(len(line.get_xdata()) for p in panels for line in p.lines if str(line.get_gid()).startswith("line:")):  # type: ignore[arg-type]
        for panel in panels:
            panel.set_ylim(0, 1)
            panel.set_yticks([])
        return
    for panel in panels:
        if logarithmic:
            panel.set_yscale("log")
            panel.yaxis.set_major_locator(LogLocator(subs=_subs(panel)))
            panel.yaxis.set_minor_locator(NullLocator())
        else:
            panel.yaxis.set_major_locator(MaxNLocator(7, steps=[1, 2, 2.5, 5, 10]))
        panel.yaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:,.6g}"))
    low, high = panels[0].get_ylim()
    if metric == "slowdown":
        low = min(low, high**-0.09 if logarithmic else 1 - 0.09 * ((high - 1) or 1))
    elif not logarithmic:
        low = 0.0
    for panel in panels:
        panel.set_ylim(low, high)


def _subs(panel: Axes) -> tuple[float, ...]:
    """Ticks of a decade: the more decades there are, the fewer, or their labels would lie on each other."""
    low, high = panel.get_ylim()
    decades = math.log10(high / low)
    return (1.0, 1.5, 2.0, 3.0, 5.0, 7.0) if decades < 1.6 else (1.0, 2.0, 5.0) if decades < 3 else (1.0,)


def one_axis(panels: Sequence[PolicyPanel]) -> bool:
    """Whether all panels have the same values along their axes."""
    return len({panel.along for panel in panels}) == 1


def _failed_label(compared: PolicyComparison) -> str:
    return "out of\nmemory" if all("memory" in p.ending for p in compared.points if p.ending) else "failed"


def _outer_labels(axes: list[Axes], label: str) -> None:
    """Axis labels once: y at the left column, x at the bottom row."""
    _, columns = shape(len(axes))
    for i, panel in enumerate(axes):
        if i % columns == 0:
            panel.set_ylabel(label if len(axes) == 1 else label.split("  ")[0])
        if i + columns < len(axes):
            panel.set_xlabel("")
        elif columns > 1:
            words, cut, rest = panel.get_xlabel().partition(",")
            panel.set_xlabel(words + ("  (not to scale)" if cut and "not to scale" in rest else ""))
