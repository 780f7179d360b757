"""A metric as horizontal bars, one per policy; a run that failed says so in its place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter
from matplotlib.transforms import ScaledTranslation

from gpusim.results.metrics import metric as declared
from gpusim.show.groups import starred
from gpusim.show.panels import entitle, grid, label_width, row_labels, shape
from gpusim.show.style import ALARM, BLACK, BLUE, COLOURS, FAINT, INK, SOFT, Look, canvas, looks
from gpusim.show.values.comparison import PolicyComparison, PolicyPanel, PolicyPoint
from gpusim.show.view import POLICIES, human, main_unit

LOOK = Look(BLUE, "o")
LONG = 14  # characters of a label from which it stands only once, left of all panels
FAR = 20.0  # largest over smallest value from which dots on a logarithmic axis stand for bars
ROW, AXIS = 0.27, 0.72  # inches of a bar, and of the title and the axis of a panel


def bars(compared: PolicyComparison) -> tuple[Figure, float]:
    """One panel per entry, best bar on top; a ratio has one scale in all panels.  Returns the inches of the panels too.

    Policies stand in one order in all panels, as in every other figure.  Names too long to stand beside every panel stand
    once per row of panels, and in one order too.
    """
    panels, metric, plan = compared.panels, compared.metric, compared.plan
    look = _looks(compared)
    rows, columns = shape(len(panels))
    once = columns > 1 and max(map(len, look)) > LONG
    common = once or bool(set(plan.lines) & set(POLICIES))
    orders = [_order(panel, compared, common=common, once=once) for panel in panels]
    high = [max(len(order) for order in orders[r * columns : (r + 1) * columns]) for r in range(rows)]
    figure = canvas()
    shared = declared(metric).unit == "1"
    lines: list[int] = []
    titles = [0.0] * rows
    axes = grid(figure, len(panels), sharex=shared, sharey="row" if once else False, height_ratios=high)
    found = _reached(panels)
    divisor, label = main_unit(metric, max(found, default=0.0))
    labels = label_width(list(look)) * (1 if once else columns)
    far = any(min(v) > 0 and max(v) / min(v) > FAR for v in (map(_reached, [[p] for p in panels])) if v)
    for i, (panel, shown, order) in enumerate(zip(axes, panels, orders, strict=True)):
        _rows(panel, shown, order, metric, divisor, look, dotted=far)
        titles[i // columns] = max(titles[i // columns], entitle(panel, shown.name, len(panels), labels))
        lines.append(row_labels(panel, [starred(n, n in compared.future) for n in order]))
        panel.set_ylim(high[i // columns] - 0.4, -0.6)
        panel.grid(axis="y", visible=False)
        panel.grid(axis="x", visible=True)
        _axis(panel, [v / divisor for v in (found if shared else _reached([shown]))], columns, logarithmic=far)
        if i + columns >= len(axes):
            panel.set_xlabel(label if columns == 1 else label.split("  ")[0])
    return figure, sum(ROW * bars * (1 + 0.42 * (max(lines) - 1)) + AXIS for bars in high) + sum(titles)


def _axis(panel: Axes, found: Sequence[float], columns: int, *, logarithmic: bool) -> None:
    """From zero, or logarithmic, to what leaves room for the number beside the longest bar."""
    if not found:
        panel.set_xticks([])
        return
    if not logarithmic:
        panel.set_xlim(0, (max(found) or 1.0) * (1.06 + 0.09 * columns))
        return
    low, high = min(found), max(found)
    panel.set_xscale("log")
    panel.set_xlim(low / (high / low) ** 0.06, high * (high / low) ** (0.06 + 0.1 * columns))
    panel.xaxis.set_major_locator(LogLocator(subs=(1.0,) if columns > 1 or high / low > 300 else (1.0, 2.0, 5.0)))
    panel.xaxis.set_minor_formatter(NullFormatter())
    panel.xaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:,.6g}"))


def _looks(compared: PolicyComparison) -> dict[str, Look]:
    """Machines, programs, combinations of many policies and more names than there are colours have none of their own: their
    names stand beside the bars."""
    lines, look = compared.plan.lines, looks(compared.names, compared.future)
    if len(look) > len(COLOURS) or (lines and (not set(lines) & set(POLICIES) or len(lines) > 2)):
        return {name: replace(LOOK, dashed=name in compared.future) for name in look}
    return look


def _order(panel: PolicyPanel, compared: PolicyComparison, *, common: bool, once: bool) -> list[str]:
    """The names of a panel's bars from the top: those of all panels, or its own, in the common order or by its own numbers."""
    there = {line.name: line.points[0].value for line in panel.lines}
    if common:
        return [name for name in compared.names if once or name in there]
    sign = -1.0 if declared(compared.metric).better == "higher" else 1.0
    return sorted(there, key=lambda n: (there[n] is None, sign * (there[n] or 0.0), n))


def _reached(panels: Sequence[PolicyPanel]) -> list[float]:
    """The values of these panels, the ends of their intervals and repetitions, and the bounds of what finished."""
    points = [p for panel in panels for line in panel.lines for p in line.points if p.value is not None]
    ends = [end for p in points for end in (p.interval or ())]
    return [v for p in points for v in (p.value, p.low, p.high, p.no_limit, p.bound) if v is not None] + ends


def ticks(compared: PolicyComparison) -> str:
    """What the ticks across the bars are, as a sentence of the note; "" without any."""
    drawn = {of for point in compared.points for of, _ in _bounds(point, compared.metric)}
    words = {"no_limit": "Tick: without memory limit.", "bound": "Dotted: what must come in, over the link."}
    return " ".join(said for of, said in words.items() if of in drawn)


def _bounds(point: PolicyPoint, metric: str) -> list[tuple[str, float]]:
    """Those that are drawn across a bar: without a limit where that is no common line, and the bound if it is more."""
    if point.value is None:
        return []
    free = point.no_limit if metric == "makespan_ns" else None
    beyond = point.bound if point.bound is not None and point.bound > 1.01 * (point.no_limit or 0.0) else None
    return [(of, at) for of, at in (("no_limit", free), ("bound", beyond)) if at is not None]


def _rows(
    panel: Axes, shown: PolicyPanel, order: Sequence[str], metric: str, divisor: float, look: Mapping[str, Look], *,
    dotted: bool,
) -> None:  # fmt: skip
    there = {line.name: line.points[0] for line in shown.lines}
    for y, name in enumerate(order):
        if name not in there:
            panel.annotate("not run", (0, y), (4, 0), xycoords=panel.get_yaxis_transform(), textcoords="offset points",
                           va="center", fontsize=8, color=SOFT)  # fmt: skip
            continue
        _bar(panel, y, name, there[name], metric=metric, divisor=divisor, look=look[name], dotted=dotted)
        for of, at in _bounds(there[name], metric):
            x, span = [at / divisor] * 2, [y - 0.4, y + 0.4]
            panel.plot(x, span, color="white", lw=3.2, zorder=3, solid_capstyle="butt")
            gid = f"bound:{name}" if of == "no_limit" else f"least:{name}"
            panel.plot(x, span, "-" if of == "no_limit" else ":", color=BLACK, lw=1.6, gid=gid, zorder=3.1)
    if metric == "slowdown":
        panel.axvline(1, color=SOFT, lw=0.9, gid="bound:no limit")


def _bar(panel: Axes, y: int, name: str, point: PolicyPoint, *, metric: str, divisor: float, look: Look, dotted: bool) -> None:
    beside: dict[str, Any] = {"textcoords": "offset points", "va": "center", "fontsize": 8.5}
    if point.value is None:
        figure = panel.get_figure(root=True)
        assert figure is not None
        across = panel.get_yaxis_transform()
        shift = ScaledTranslation(8 / 72, 0, figure.dpi_scale_trans)
        panel.plot([0], [y], "x", color=ALARM, ms=6, mew=1.8, gid=f"failed:{name}", transform=across + shift)
        panel.annotate(point.ending or "not measured", (0, y), (17, 0), color=ALARM, xycoords=across, **beside)
        return
    if dotted:  # a bar of a logarithmic axis would begin anywhere
        panel.plot([point.value / divisor], [y], "o", color="white" if look.dashed else look.colour, mec=look.colour, ms=6.5,
                   mew=1.4, gid=f"dot:{name}", zorder=3.5)  # fmt: skip
        panel.axhline(y, color=FAINT, lw=0.6, zorder=0)
    elif look.dashed:
        panel.barh(y, point.value / divisor, 0.66, gid=f"bar:{name}", facecolor="white", edgecolor=look.colour, lw=1.1,
                   hatch="////", ls="--")  # fmt: skip
    else:
        panel.barh(y, point.value / divisor, 0.66, gid=f"bar:{name}", color=look.colour)
    end = point.value
    spread = point.spread
    if spread:
        panel.plot([e / divisor for e in spread], [y, y], "|-", color=INK, lw=1.0, ms=5, gid=f"interval:{name}", zorder=4)
        end = max(end, spread[1])
    note = f" ({point.ending} in part)" if point.ending else ""
    end = max([end, *(at for _, at in _bounds(point, metric))])
    panel.annotate(human(metric, point.value) + note, (end / divisor, y), (6 if dotted else 4, 0), **beside)
