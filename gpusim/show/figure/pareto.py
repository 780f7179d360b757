"""What does less memory cost?  Every run by the memory that it held and its time, with the front of the best trades."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from gpusim.base.text import join
from gpusim.results.result import Result
from gpusim.show.groups import starred
from gpusim.show.panels import MOST_PANELS, entitle, grid, shape
from gpusim.show.style import BLACK, INK, SOFT, Look, canvas, empty, headline, looks, styled
from gpusim.show.values.pareto import ParetoFronts, ParetoPanel, answer, pareto
from gpusim.show.view import ORACLE, main_unit, scale

MOST_LINES = 12  # names from which colours no longer tell them apart
FAR = 6.0  # largest over smallest value from which an axis is logarithmic
LINE = 0.075  # of a panel's height, which a name takes
HIGH = 2.45  # inches of a row of panels with its axes


@styled
def draw(results: Sequence[Result], question: str = "", metric: str = "") -> Figure:
    """A panel per machine and program.  Front points say their memory limit; oracles are hollow and stand in no front."""
    found = pareto(results, metric) if results else ParetoFronts("makespan_ns", (), ())
    panels = [panel for panel in found.panels if panel.points]
    figure = canvas()
    if not panels:
        empty(figure, "No run finished with known memory and time.")
        return figure
    shown = panels[:MOST_PANELS]
    look = looks(found.lines)
    told = len(found.lines) <= MOST_LINES
    future = {p.line for panel in shown for p in panel.points if p.oracle}
    rows, columns = shape(len(shown))
    tall = [0.0] * rows
    points = [p for panel in shown for p in panel.points]
    divisor, label = main_unit(found.metric, max(p.value for p in points))
    per_byte, unit = scale("B", max(p.memory or 0.0 for p in points))
    for index, (panel, place) in enumerate(zip(grid(figure, len(shown)), shown, strict=True)):
        _panel(panel, place, look if told else {}, divisor, per_byte)
        tall[index // columns] = max(tall[index // columns], entitle(panel, place.name, len(shown)))
        _axes(panel, place, divisor, per_byte, columns)
        _names(panel, place, look if told else {}, columns, (per_byte, divisor))
        panel.set_ylabel(label.split("  ")[0] if index % columns == 0 else "")
        panel.set_xlabel(f"memory held at the peak [{unit}]" if columns < 3 else f"memory held [{unit}]")
    handles = _handles(found, shown, look if told else {}, future)
    note = f"{len(shown)} of {len(panels)} panels are shown. " if len(shown) < len(panels) else ""
    failed = [f"{count} {how}" for how, count in _failed(shown).items()]
    note += f"Did not finish: {join(failed)}. " if failed else ""
    note += f"{ORACLE} reads the future." if future else ""
    headline(figure, question or "What does less memory cost?", answer(found), note, handles,
             body=rows * (HIGH + (0.9 if len(shown) == 1 else 0.0)) + sum(tall))  # fmt: skip
    return figure


def _panel(panel: Axes, place: ParetoPanel, look: Mapping[str, Look], divisor: float, per_byte: float) -> None:
    best = place.front
    for p in place.points:
        one = look.get(p.line, Look(SOFT, "o"))
        x, y = (p.memory or 0.0) / per_byte, p.value / divisor
        if p.interval:
            low, high = (end / divisor for end in p.interval)
            panel.vlines(x, low, high, color=one.colour, lw=1.2, alpha=0.6, gid=f"interval:{p.line}")
        chosen = p in best
        face, edge = ("white", 1.1) if p.oracle else (one.colour, 0.4)
        panel.plot([x], [y], one.marker, color=face, mec=one.colour, mew=edge, ms=(7 if chosen else 5) * one.grow,
                   alpha=1.0 if chosen or p.oracle else 0.5, zorder=4 if chosen else 3, gid=f"run:{p.line}")  # fmt: skip
    panel.step([(p.memory or 0.0) / per_byte for p in best], [p.value / divisor for p in best], where="post", color=INK, lw=1.1,
               zorder=2, gid="front")  # fmt: skip
    if len(bound := place.bound) > 1:
        panel.step([m / per_byte for m, _ in bound], [b / divisor for _, b in bound], ":", where="post", color=BLACK, lw=1.3,
                   zorder=2, gid="bound")  # fmt: skip


def _names(panel: Axes, place: ParetoPanel, look: Mapping[str, Look], columns: int, per: tuple[float, float]) -> None:
    """Below and left of the front nothing lies: there its points say their memory limit, or their names without colours.

    A name that would lie over another is left out.
    """
    taken: list[tuple[float, float, float]] = []  # right end, top, width: shares of the panel
    for p in place.front:
        words = p.where if look else p.name
        at = ((p.memory or 0.0) / per[0], p.value / per[1])
        x, y = panel.transAxes.inverted().transform(panel.transData.transform(at))
        wide = 0.0125 * columns * len(words)
        free = all(x - wide > right or right - width > x or abs(y - top) > LINE for right, top, width in taken)
        if words and free and x > wide:
            taken.append((x, y, wide))
            panel.annotate(words, at, (-5, -4), textcoords="offset points", ha="right", va="top", fontsize=8, color=INK,
                           gid=f"name:{p.line}").set_in_layout(False)  # fmt: skip


def _axes(panel: Axes, place: ParetoPanel, divisor: float, per_byte: float, columns: int) -> None:
    """Room left of and below the front for its names; logarithmic where values lie far apart."""
    held = [(p.memory or 0.0) / per_byte for p in place.points]
    high = [e / divisor for p in place.points for e in (p.value, *(p.interval or ()))]
    high += [b / divisor for _, b in place.bound] if len(place.bound) > 1 else []
    for axis, found, set_scale, set_limits in (
        (panel.xaxis, held, panel.set_xscale, panel.set_xlim), (panel.yaxis, high, panel.set_yscale, panel.set_ylim),
    ):  # fmt: skip
        low, top = min(found), max(found)
        if low > 0 and top / low > FAR:
            set_scale("log")
            set_limits(low / (top / low) ** (0.07 * columns), top * (top / low) ** 0.08)
            axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if top / low < 200 else (1.0,)))
            axis.set_minor_locator(NullLocator())
        else:
            pad = (top - low) or top or 1.0
            set_limits(max(0.0, low - 0.07 * columns * pad - 0.05 * pad), top + 0.08 * pad)
            axis.set_major_locator(MaxNLocator(7 - columns, steps=[1, 2, 2.5, 5, 10]))
        axis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:,.6g}"))
    panel.grid(axis="x", visible=True)


def _handles(
    found: ParetoFronts, shown: Sequence[ParetoPanel], look: Mapping[str, Look], future: set[str]
) -> list[Artist]:
    handles: list[Artist] = [
        Line2D([], [], ls="", marker=look[n].marker, color="white" if n in future else look[n].colour, mec=look[n].colour,
               ms=6 * look[n].grow, label=starred(n, n in future))
        for n in found.lines if n in look and len(found.lines) > 1
    ]  # fmt: skip
    handles.append(Line2D([], [], color=INK, lw=1.1, drawstyle="steps-post", label="front: no other beats it in both"))
    if any(len(panel.bound) > 1 for panel in shown):
        handles.append(Line2D([], [], color=BLACK, lw=1.3, ls=":", label="bound: what must come in"))
    return handles


def _failed(shown: Sequence[ParetoPanel]) -> dict[str, int]:
    total: dict[str, int] = {}
    for panel in shown:
        for how, count in panel.failed.items():
            total[how] = total.get(how, 0) + count
    return total
