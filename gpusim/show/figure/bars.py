"""A metric as horizontal bars, one per policy; a run that failed says so in its place."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.transforms import ScaledTranslation

from gpusim.results.metrics import metric as declared
from gpusim.results.result import Result
from gpusim.show.groups import by_line, mean, oracles, ranked, starred
from gpusim.show.interval import interval
from gpusim.show.panels import entitle, grid, shape
from gpusim.show.style import ALARM, BLACK, BLUE, HEIGHT, INK, SOFT, Look, canvas, looks
from gpusim.show.view import POLICIES, Layout, ending, human, main_unit, value

LOOK = Look(BLUE, "o")
LONG = 14  # characters of a label from which it stands only once, left of all panels
LEAST_ROWS = 5  # a panel with fewer bars leaves room instead of fattening them


def bars(panels: dict[str, list[Result]], plan: Layout, metric: str) -> Figure:
    """One panel per entry, best bar on top; a ratio has one scale in all panels.

    Policies stand in one order in all panels, as in every other figure.  Names too long to stand beside every panel stand
    once per row of panels, and in one order too.
    """
    everything = [r for runs in panels.values() for r in runs]
    future = oracles(everything, plan.lines)
    look = looks(by_line(everything, plan.lines), future)
    # Machines, programs and combinations of many policies have no colour of their own; their names stand beside the bars.
    if plan.lines and (not set(plan.lines) & set(POLICIES) or len(plan.lines) > 2):
        look = {name: replace(LOOK, dashed=name in future) for name in look}
    rows, columns = shape(len(panels))
    most = max(LEAST_ROWS, *(len(by_line(runs, plan.lines)) for runs in panels.values()))
    figure = canvas(height=max(HEIGHT, rows * (0.24 * most + 0.6) + 0.9))
    shared = declared(metric).unit == "1"
    sign = -1.0 if declared(metric).better == "higher" else 1.0
    once = columns > 1 and max(map(len, look)) > LONG
    common = ranked(everything, metric) if once or set(plan.lines) & set(POLICIES) else None
    labels = max(map(len, look)) * (1 if once else columns)
    axes = grid(figure, len(panels), sharex=shared, sharey=once)
    found = _reached(everything, metric)
    divisor, label = main_unit(metric, max(found, default=0.0))
    for i, (panel, (title, runs)) in enumerate(zip(axes, panels.items(), strict=True)):
        lines = by_line(runs, plan.lines)
        means = {name: mean(there, metric) for name, there in lines.items()}
        order = sorted(means, key=lambda n: (means[n] is None, sign * (means[n] or 0.0), n))
        if common:
            order = common if once else [name for name in common if name in lines]
        for y, name in enumerate(order):
            if name not in lines:
                continue
            how = next((e for r in lines[name] if (e := ending(r))), "")
            error = interval(lines[name], metric)
            _bar(panel, y, name, means[name], divisor=divisor, metric=metric, look=look[name], how=how, error=error)
            free = mean(lines[name], "bound_no_limit_ns") if metric == "makespan_ns" else None
            if free is not None:
                panel.plot([free / divisor] * 2, [y - 0.4, y + 0.4], color=BLACK, lw=1.6, gid=f"bound:{name}")
                label = label if "  " in label else f"{label}  (tick: without memory limit)"
        if metric == "slowdown":
            panel.axvline(1, color=SOFT, lw=0.9, gid="bound:no limit")
        entitle(panel, title, len(panels), labels)
        panel.set_yticks(range(len(order)), [starred(n, n in future) for n in order])
        panel.set_ylim(max(len(order), LEAST_ROWS) - 0.4, -0.6)
        panel.grid(axis="y", visible=False)
        panel.grid(axis="x", visible=True)
        panel.tick_params(axis="y", length=0)
        here = found if shared else _reached(runs, metric)
        panel.set_xlim(0, (max(here, default=0.0) / divisor or 1.0) * (1.06 + 0.09 * columns))
        if not here:
            panel.set_xticks([])
        if i + columns >= len(axes):
            panel.set_xlabel(label if columns == 1 else label.split("  ")[0])
    return figure


def _reached(runs: list[Result], metric: str) -> list[float]:
    """The values of these runs, and the upper ends of their intervals."""
    ends = [bars[1] for r in runs if (bars := interval([r], metric))]
    return [v for r in runs if (v := value(r, metric)) is not None] + ends


def _bar(
    panel: Axes, y: int, name: str, mean: float | None, *, divisor: float, metric: str, look: Look, how: str,
    error: tuple[float, float] | None,
) -> None:  # fmt: skip
    beside: dict[str, Any] = {"textcoords": "offset points", "va": "center", "fontsize": 8.5}
    if mean is None:
        figure = panel.get_figure(root=True)
        assert figure is not None
        shift = ScaledTranslation(8 / 72, 0, figure.dpi_scale_trans)
        panel.plot([0], [y], "x", color=ALARM, ms=6, mew=1.8, gid=f"failed:{name}", transform=panel.transData + shift)
        panel.annotate(how or "not measured", (0, y), (17, 0), color=ALARM, **beside)
        return
    if look.dashed:
        panel.barh(y, mean / divisor, 0.66, gid=f"bar:{name}", facecolor="white", edgecolor=look.colour, lw=1.1,
                   hatch="////", hatchcolor=look.colour, ls="--")  # fmt: skip
    else:
        panel.barh(y, mean / divisor, 0.66, gid=f"bar:{name}", color=look.colour)
    end = mean
    if error:
        panel.plot([e / divisor for e in error], [y, y], "|-", color=INK, lw=1.0, ms=5, gid=f"interval:{name}", zorder=4)
        end = max(mean, error[1])
    note = f" ({how} in part)" if how else ""
    panel.annotate(human(metric, mean) + note, (end / divisor, y), (4, 0), **beside)
