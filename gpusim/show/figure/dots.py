"""Many policies over a number: what the number costs above, and how far each policy is from the best below."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import matplotlib
import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter, NullLocator

from gpusim.results.metrics import metric as declared
from gpusim.show.figure.curves import LOG_FROM, axis_across, positions, references
from gpusim.show.groups import starred
from gpusim.show.panels import LABEL, entitle, label_width, row_labels, shape
from gpusim.show.style import ALARM, INK, SOFT, canvas, wrapped
from gpusim.show.values.comparison import PolicyComparison, PolicyPanel, Ratio, ratios
from gpusim.show.view import main_unit, text

FROM = 6  # lines from which they would lie on top of each other
MOST = 8  # values along the axis that are told apart
FAR = 3.0  # largest ratio from which the axis is logarithmic
NEAR = 1.5  # largest over smallest value up to which an axis from zero would show a flat line
ABOVE, AXES = 1.75, 1.55  # inches of the panel above; of the axes and titles of both
STEP, LEAST = 0.072, 0.2  # inches of a row for each value along the axis, and at least
RANGE = "#B9C6D6"
_AXES = {"memory": "device memory", "memory_share": "device memory"}
_MARKERS = ("o", "s", "D", "^", "v", "P", "h", "X")


@dataclass(frozen=True)
class Shade:
    """How one value along the axis is drawn."""

    colour: str
    marker: str
    down: float  # in its row, as a share of the row's height


def dots(compared: PolicyComparison) -> tuple[Figure, float, list[Artist], list[Artist]]:
    """The figure, the inches that its panels need, the handles of its references, and those of its dots.

    Above, from the best to the last policy as a band, with the references; below, a row per policy with a dot for each value
    along the axis: how many times the metric of the best it has there.
    """
    panels, names = compared.panels, compared.names
    found = [ratios(panel, compared.metric) for panel in panels]
    values = sorted({p.x for p in compared.points})
    shown = [values[i] for i in np.unique(np.linspace(0, len(values) - 1, min(MOST, len(values))).round().astype(int))]
    shade = shades(shown)
    rows, columns = shape(len(panels))
    lines = max(len(wrapped(name, LABEL)) for name in names)
    each = max(LEAST * lines, STEP * len(shown) + 0.05)
    below = each * len(names)
    figure = canvas()
    layout = figure.add_gridspec(2 * rows, columns, height_ratios=[ABOVE, below] * rows)
    alone = [figure.add_subplot(layout[2 * (i // columns), i % columns]) for i in range(len(panels))]
    ranked = [figure.add_subplot(layout[2 * (i // columns) + 1, i % columns]) for i in range(len(panels))]
    handles, tall = _ranges(alone, compared, columns)
    limits = _limits([r for there in found for ratio in there.values() for r in ratio])
    for index, (panel, there) in enumerate(zip(ranked, found, strict=True)):
        _rows(panel, there, compared, shade, limits)
        if panel.get_xscale() == "linear":
            panel.xaxis.set_major_locator(MaxNLocator(4 if columns > 2 else 6, steps=[1, 2, 2.5, 5, 10]))
        panel.tick_params(axis="y", length=0, labelleft=index % columns == 0)
        last = index + columns >= len(panels)
        panel.set_xlabel(_label(compared) if last and columns < 3 else "over the best [×]" if last else "")
    axis = Line2D([], [], ls="", label=f"{_AXES.get(compared.plan.across, compared.plan.across.replace('_', ' '))}:")
    dotted: list[Artist] = [axis]
    dotted += [
        Line2D([], [], color=s.colour, marker=s.marker, ls="", ms=6, mec="white", mew=0.4, label=_named(compared, x))
        for x, s in shade.items()
    ]
    if any(ratio.ending for there in found for ratios_of in there.values() for ratio in ratios_of):
        dotted.append(Line2D([], [], color=ALARM, marker="x", ls="", ms=5.5, mew=1.6, label="did not finish"))
    return figure, rows * (ABOVE + below + AXES + tall), handles, dotted


def shades(values: Sequence[float]) -> dict[float, Shade]:
    """Dark for the smallest value, light for the largest, and a marker each, so that they differ in grey print too."""
    ramp = matplotlib.colormaps["viridis"](np.linspace(0.0, 0.82, max(len(values), 1)))
    return {
        x: Shade(matplotlib.colors.to_hex(ramp[i]), _MARKERS[i % len(_MARKERS)], (i + 0.5) / len(values) - 0.5)
        for i, x in enumerate(values)
    }


def _ranges(axes: Sequence[Axes], compared: PolicyComparison, columns: int) -> tuple[list[Artist], float]:
    """Best to last of each panel over the axis, with the references; their handles, and the inches that long titles take."""
    tall = 0.0
    panels, metric = compared.panels, compared.metric
    found = [p.value for p in compared.points if p.value is not None]
    divisor, label = main_unit(metric, max(found, default=0.0))
    where = positions({p.x for p in compared.points})
    shared = declared(metric).unit in ("1", "1/s")
    handles: dict[str, Artist] = {}
    for index, (axis, panel) in enumerate(zip(axes, panels, strict=True)):
        tall = max(tall, entitle(axis, panel.name, len(panels), label_width(compared.names)))
        handles |= _range(axis, panel, where, divisor, compared)
        axis_across(axis, compared.plan.across, {where[x]: x for x in panel.along}, columns)
        words, _, rest = axis.get_xlabel().partition(",")
        axis.set_xlabel(words + ("  (not to scale)" if "not to scale" in rest else "") if columns > 1 else axis.get_xlabel())
        axis.set_ylabel(label.split("  ")[0] if index % columns == 0 else "")
    for group in [axes] if shared else [[axis] for axis in axes]:
        _heights(group, metric, found)
    return list(handles.values()), tall


def _range(
    axis: Axes, panel: PolicyPanel, where: Mapping[float, float], divisor: float, compared: PolicyComparison
) -> dict[str, Artist]:
    fair = [line for line in panel.lines if not line.oracle] or list(panel.lines)
    heights = {x: [p.value / divisor for line in fair if (p := line.at(x)) and p.value is not None] for x in panel.along}
    known = [(where[x], min(there), max(there)) for x, there in heights.items() if there]
    if not known:
        axis.set_ylim(0, 1)
        axis.set_yticks([])
        axis.text(0.5, 0.5, "no run finished", ha="center", va="center", color=ALARM, transform=axis.transAxes, fontsize=8.5)
        return {}
    x, low, high = zip(*known, strict=True)
    upwards = declared(compared.metric).better == "higher"
    best, last = (high, low) if upwards else (low, high)
    if len(x) > 1:
        axis.fill_between(x, low, high, color=RANGE, lw=0, gid="range")
    else:
        axis.vlines(x, low, high, color=RANGE, lw=9, gid="range")
    axis.plot(x, last, color=SOFT, lw=0.7, gid="last")
    (line,) = axis.plot(x, best, color=INK, lw=1.8, marker="o", ms=3.5, gid="best", label="best policy")
    choose = max if upwards else min
    for at in panel.along:
        there = [p for one in fair if (p := one.at(at)) and p.value is not None]
        first = choose(there, key=lambda p: p.value or 0.0, default=None)
        if first and first.interval:
            ends = [end / divisor for end in first.interval]
            axis.plot([where[at]] * 2, ends, color=INK, lw=1.2, gid="interval:best")
    handles: dict[str, Artist] = {"best": line, "range": Patch(facecolor=RANGE, label="to the last")}
    for oracle in (line for line in panel.lines if line.oracle and line not in fair):
        points = [(where[p.x], p.value / divisor) for p in oracle.points if p.value is not None]
        if points:
            (dashed,) = axis.plot(*zip(*points, strict=True), "--", color=INK, lw=1.1, gid=f"line:{oracle.name}",
                                  label=starred(oracle.name, True))  # fmt: skip
            handles[oracle.name] = dashed
    if compared.references:
        handles |= references(axis, panel, where, divisor, oracle=compared.oracle_apart)
    return handles


def _heights(group: Sequence[Axes], metric: str, found: Sequence[float]) -> None:
    """One scale for panels that share it, from zero or logarithmic; below the level of no limit there is room for its name."""
    drawn = [axis for axis in group if any(line.get_gid() == "best" for line in axis.lines)]
    if not drawn:
        return
    low, high = min(a.get_ylim()[0] for a in drawn), max(a.get_ylim()[1] for a in drawn)
    far = min(found) > 0 and max(found) / min(found) > LOG_FROM
    if metric == "slowdown":
        low = high**-0.12 if far else 1 - 0.14 * ((high - 1) or 1)
    elif far:
        low = min(found) if len(group) > 1 else max(low, 1e-12)
    elif max(found) < NEAR * min(found):
        low, high = low - 0.35 * (high - low), high + 0.15 * (high - low)
    else:
        low = 0.0
    for axis in group:
        if axis not in drawn:
            continue
        axis.set_yscale("log" if far and low > 0 else "linear")
        if far and low > 0:
            axis.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
            axis.yaxis.set_minor_locator(NullLocator())
        else:
            axis.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]))
        axis.yaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:,.6g}"))
        axis.set_ylim(low, high)


def _limits(found: Sequence[Ratio]) -> tuple[float, float, bool]:
    """The axis of ratios, the same in all panels: from, to, and whether it is logarithmic."""
    ends = [e for r in found if r.value is not None for e in (r.value, *(r.interval or ()), r.low, r.high) if e]
    low, high = min([1.0, *ends]), max([1.02, *ends])
    if high / low > FAR:
        return low / (high / low) ** 0.05, high * (high / low) ** 0.12, True
    pad = high - low
    return low - 0.06 * pad, high + 0.14 * pad, False


def _rows(
    panel: Axes, there: Mapping[str, Sequence[Ratio]], compared: PolicyComparison, shade: Mapping[float, Shade],
    limits: tuple[float, float, bool],
) -> None:  # fmt: skip
    low, high, logarithmic = limits
    for y, name in enumerate(compared.names):
        if y % 2 == 0:
            panel.axhspan(y - 0.5, y + 0.5, color=INK, alpha=0.04, lw=0, zorder=0)
        future = name in compared.future
        for ratio in there.get(name, ()):
            if ratio.x in shade:
                _dot(panel, y, name, ratio, shade[ratio.x], future=future)
        if name not in there:
            panel.annotate("not run", (1, y), (4, 0), textcoords="offset points", va="center", fontsize=8, color=SOFT)
    row_labels(panel, [starred(n, n in compared.future) for n in compared.names], fontsize=8)
    panel.set_ylim(len(compared.names) - 0.5, -0.5)
    if logarithmic:
        panel.set_xscale("log")
        panel.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if high / low < 100 else (1.0,)))
        panel.xaxis.set_minor_locator(NullLocator())
        panel.xaxis.set_minor_formatter(NullFormatter())
    panel.set_xlim(low, high)
    panel.xaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:.6g}×"))
    panel.axvline(1, color=SOFT, lw=0.9, zorder=1, gid="best")
    panel.grid(axis="y", visible=False)
    panel.grid(axis="x", visible=True)


def _dot(panel: Axes, y: int, name: str, ratio: Ratio, shade: Shade, *, future: bool) -> None:
    at = y + 0.86 * shade.down
    if ratio.value is None and ratio.ending:
        # At the right edge: it costs more than any that finished.
        panel.plot([0.965], [at], "x", color=ALARM, ms=4, mew=1.3, transform=panel.get_yaxis_transform(), gid=f"failed:{name}",
                   zorder=5)  # fmt: skip
        return
    if ratio.value is None:
        return  # it has no such number
    if spread := ratio.spread:
        panel.plot(spread, [at, at], color=shade.colour, lw=1.1, alpha=0.75, gid=f"interval:{name}", zorder=2)
    panel.plot([ratio.value], [at], shade.marker, color="white" if future else shade.colour, ms=4.4, mec=shade.colour,
               mew=1.2 if future else 0.2, gid=f"dot:{name}", zorder=4, clip_on=False)  # fmt: skip


def _named(compared: PolicyComparison, x: float) -> str:
    """A value along the axis, in words."""
    return f"{text(compared.plan.across, x)}"


def _label(compared: PolicyComparison) -> str:
    what = declared(compared.metric).label
    if declared(compared.metric).better == "higher":
        return f"{what} of the best over its own [×]"
    return f"{what} over that of the best [×]"

