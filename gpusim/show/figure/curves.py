"""A metric over a number, one line per policy."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, MaxNLocator, NullLocator

from gpusim.results.metrics import metric as declared
from gpusim.results.result import Result
from gpusim.show.groups import by_line, mean, oracles, ranked, starred
from gpusim.show.interval import interval
from gpusim.show.panels import entitle, failed_band, grid, legend, shape
from gpusim.show.style import BLACK, INK, SOFT, Look, canvas, looks
from gpusim.show.view import (
    ORACLE,
    OVERSUBSCRIPTION,
    POLICIES,
    Layout,
    along,
    ending,
    kind_of,
    least_makespan,
    main_unit,
    scale,
    value,
)  # fmt: skip

MOST_TICKS = 8
CROWDED = 0.07  # gaps of less than this share of the axis are too narrow for a label each
LOG_FROM = 6.0  # largest over smallest value from which the axis is logarithmic


def curves(panels: dict[str, list[Result]], plan: Layout, metric: str, logarithmic: bool = False) -> Figure:
    """One panel per entry; a ratio or rate has one scale in all panels, a time or size its own in each.

    logarithmic  in any case, not only where values lie far apart
    """
    everything = [r for runs in panels.values() for r in runs]
    future = oracles(everything, plan.lines)
    names = ranked(everything, metric)
    look = looks(names, future)
    figure = canvas(shape(len(panels))[0])
    shared = declared(metric).unit in ("1", "1/s") or len(panels) == 1
    axes = grid(figure, len(panels), sharey=shared, sharex=_one_axis(panels, plan))
    found = [v for r in everything if (v := value(r, metric)) is not None]
    divisor, label = main_unit(metric, max(found, default=0.0))
    logarithmic = bool(found) and min(found) > 0 and (logarithmic or max(found) / min(found) > LOG_FROM)
    where = _positions({along(r, plan.across) for r in everything})
    handles: dict[str, Line2D] = {}
    marks: list[list[tuple[float, str, Look]]] = []
    for panel, (title, runs) in zip(axes, panels.items(), strict=True):
        entitle(panel, title, len(panels))
        x_of = {id(r): where[along(r, plan.across)] for r in runs}
        lines = by_line(runs, plan.lines)
        marks.append([])
        for rank, name in enumerate(names):
            at: dict[float, list[Result]] = {}
            for r in sorted(lines.get(name, ()), key=lambda r: x_of[id(r)]):
                at.setdefault(x_of[id(r)], []).append(r)
            points = [(x, m / divisor) for x in at if (m := mean(at[x], metric)) is not None]
            marks[-1] += [(x, name, look[name]) for x in at if any(ending(r) for r in at[x])]
            line = _line(panel, name, points, look[name], rank / max(1, len(names) - 1))
            handles.setdefault(name, line)
            _spread(panel, at, metric, divisor, look[name])
            _intervals(panel, name, at, metric, divisor, look[name])
            line.set_label(starred(name, name in future))
        drawn = any(value(r, metric) is not None for r in runs)  # where nothing finishes there is no scale for references
        if drawn and (metric == "slowdown" or set(plan.lines) & set(POLICIES)):  # else each line has one of its own
            _no_limit(panel, runs, metric, divisor)
            alike = set(plan.lines) <= set(POLICIES)  # over other tiers an oracle has another time
            if alike and not future and (oracle := _oracle(panel, runs, x_of, metric, divisor)):
                handles[ORACLE] = oracle
            if bound := _least(panel, runs, x_of, metric, divisor):
                handles["bound"] = bound
        _across(panel, plan.across, {x: v for v, x in where.items() if x in set(x_of.values())}, shape(len(panels))[1])
    for group, there in [(axes, marks)] if shared else [([a], [m]) for a, m in zip(axes, marks, strict=True)]:
        _limits(group, metric, logarithmic)
        if any(there):
            failed_band(group, there, "out of\nmemory" if _all_oom(everything) else "failed")
    _outer_labels(axes, label)
    title = kind_of(plan.lines) + ("\nbars: p10 to p90" if any(interval([r], metric) for r in everything) else "")
    legend(axes, list(handles.values()), title, bool(future) or ORACLE in handles)
    return figure


def _line(panel: Axes, name: str, points: list[tuple[float, float]], look: Look, rank: float) -> Line2D:
    # Later lines are thinner with smaller markers, so that lines in a tie remain visible below each other.
    (line,) = panel.plot(
        [x for x, _ in points], [y for _, y in points], look.line, color=look.colour, marker=look.marker,
        lw=2.4 - 1.1 * rank, ms=(8.5 - 3.5 * rank) * look.grow, mec="white", mew=0.5, gid=f"line:{name}",
        clip_on=False, zorder=3,
    )  # fmt: skip
    line.set_in_layout(bool(points))  # a line without points would be laid out at the figure's corner
    return line


def _spread(panel: Axes, at: dict[float, list[Result]], metric: str, divisor: float, look: Look) -> None:
    """Smallest to largest of the repetitions as a band."""
    rows = []
    for x, runs in at.items():
        found = [v / divisor for r in runs if (v := value(r, metric)) is not None]
        if found:
            rows.append((x, min(found), max(found)))
    if any(row[2] > row[1] for row in rows):
        columns = [[row[i] for row in rows] for i in range(3)]
        panel.fill_between(columns[0], columns[1], columns[2], color=look.colour, alpha=0.18, lw=0)


def _intervals(panel: Axes, name: str, at: dict[float, list[Result]], metric: str, divisor: float, look: Look) -> None:
    """p10 to p90 over sampled machines as a bar at each point."""
    rows = [(x, bars) for x, runs in at.items() if (bars := interval(runs, metric))]
    if rows:
        low, high = ([bars[end] / divisor for _, bars in rows] for end in (0, 1))
        panel.vlines([x for x, _ in rows], low, high, color=look.colour, lw=1.4, alpha=0.7, gid=f"interval:{name}")


def _no_limit(panel: Axes, runs: list[Result], metric: str, divisor: float) -> None:
    """The run that has no memory limit, as a level."""
    if metric not in ("slowdown", "makespan_ns"):
        return
    free = min((b for r in runs if (b := value(r, "bound_no_limit_ns")) is not None), default=None)
    floor = 1.0 if metric == "slowdown" else free / divisor if free else None
    if floor is not None:
        panel.axhline(floor, color=SOFT, lw=0.9, zorder=1, gid="bound:no limit")
        panel.annotate("no memory limit", (1, floor), (-2, -3), ha="right", va="top", color=SOFT, fontsize=8,
                       xycoords=panel.get_yaxis_transform(), textcoords="offset points")  # fmt: skip


def _oracle(panel: Axes, runs: list[Result], x_of: dict[int, float], metric: str, divisor: float) -> Line2D | None:
    """Oracle eviction, where no line of the figure is an oracle already and something is evicted at all."""
    if metric not in ("slowdown", "makespan_ns") or all(r.spec.get("evict") in (None, "none") for r in runs):
        return None
    least: dict[float, float] = {}
    for r in runs:
        over = value(r, "over_oracle")
        mine = value(r, metric)
        if over and mine is not None:  # the run's own metric over its distance from the oracle is the oracle's metric
            y = mine / divisor / over
            least[x_of[id(r)]] = min(y, least.get(x_of[id(r)], y))
    if not least:
        return None
    x = sorted(least)
    (line,) = panel.plot(x, [least[v] for v in x], "--", color=BLACK, lw=1.1, gid="bound:oracle", zorder=2)
    line.set_label(f"oracle eviction {ORACLE}")
    return line


def _least(panel: Axes, runs: list[Result], x_of: dict[int, float], metric: str, divisor: float) -> Line2D | None:
    """The bound: no eviction policy is faster than the bytes that must come in over the link, or than no memory limit."""
    found: dict[float, float] = {}
    for r in runs:
        least = least_makespan(r)
        free = value(r, "bound_no_limit_ns")
        if least is not None and free and metric in ("slowdown", "makespan_ns"):
            y = least / (free if metric == "slowdown" else divisor)
            found[x_of[id(r)]] = min(y, found.get(x_of[id(r)], y))
    if len(found) < 2:
        return None
    x = sorted(found)
    (line,) = panel.plot(x, [found[v] for v in x], ":", color=INK, lw=1.4, gid="bound:least", zorder=2)
    line.set_label("bound: what must come in")
    return line


def _positions(values: set[float]) -> dict[float, float]:
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


def _across(panel: Axes, key: str, values: dict[float, float], columns: int) -> None:
    """The horizontal axis: position -> value; with a tick at each value while they are few."""
    positions = sorted(values)
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
    if len(positions) <= MOST_TICKS:
        panel.xaxis.set_major_locator(FixedLocator(_apart(positions, columns)))
    low, high = positions[0], positions[-1]
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


def _one_axis(panels: dict[str, list[Result]], plan: Layout) -> bool:
    return len({frozenset(str(r.spec.get(plan.across)) for r in runs) for runs in panels.values()}) == 1


def _all_oom(results: Sequence[Result]) -> bool:
    return all("memory" in ending(r) for r in results if not r.finished)


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
