"""Where does the time go?  Kernel time and stalls by cause, stacked, one bar per run."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from gpusim.results.result import Result
from gpusim.show.groups import in_order, starred
from gpusim.show.panels import row_labels
from gpusim.show.style import (
    ALARM,
    BLACK,
    BLUE,
    GREEN,
    GREY,
    INDIGO,
    INK,
    OLIVE,
    ORANGE,
    PINK,
    SKY,
    VERMILION,
    WINE,
    canvas,
    empty,
    headline,
    styled,
)  # fmt: skip
from gpusim.show.values.breakdown import IDLE, Breakdown, answer, breakdown
from gpusim.show.view import ending, human, pick, run_name, scale, varying

MOST = 16
UNSEEN = 1 / 500  # share of the axis below which a part is thinner than its edges
# Hatches tell the parts apart in grey print.
LOOKS = {
    "kernels run": (BLUE, ""), "waiting for swap-in": (VERMILION, "//"), "waiting for swap-out": (ORANGE, "\\\\"),
    "serving page faults": (WINE, "//"), "waiting for migration": (INDIGO, "\\\\"), "on remote accesses": (GREY, "//"),
    "on its own prefetches": (OLIVE, "xx"), "waiting for the CPU": (GREEN, "++"), "in the allocator": (PINK, ".."),
    "on launches": (SKY, ""), "waiting for the host": (GREEN, "xx"), "waiting for streams": (OLIVE, "--"),
    "waiting for multiprocessors": (INDIGO, "--"), "for a copy engine": (VERMILION, "xx"), IDLE: ("#D5D9E0", ""),
}  # fmt: skip
ROW, AXIS = 0.29, 0.62  # inches of a bar, and of the axis below


@styled
def draw(results: Sequence[Result], question: str = "") -> Figure:
    """Bars in the order of all figures, best first; with several streams the parts are shares of their common time."""
    if not results:
        figure = canvas()
        empty(figure, "There are no runs.")
        return figure
    shown, note = pick(results, MOST)
    keys = varying(shown)
    shown = in_order(shown, results)
    figure = canvas()
    panel = figure.add_subplot()
    spent = [breakdown(run) if run.finished else None for run in shown]
    ends = [end for one in spent if one for end in (one.total, *(one.interval or ()), one.no_limit or 0.0)]
    longest = max(ends, default=0.0)
    divisor, unit = scale("ns", longest)
    used: set[str] = set()
    for y, (run, one) in enumerate(zip(shown, spent, strict=True)):
        if one is None:
            _failed(panel, y, run, run_name(run, keys))
        else:
            used |= _bar(panel, y, one, longest, divisor)
    tall = row_labels(panel, [starred(run_name(r, keys), r.oracle) for r in shown])
    panel.set_ylim(len(shown) - 0.4, -0.6)
    panel.set_xlim(0, longest / divisor * 1.12 or 1)
    panel.grid(axis="y", visible=False)
    panel.grid(axis="x", visible=True)
    panel.set_xlabel(f"time [{unit}]")
    if not longest:
        panel.set_xticks([])
        panel.set_xlabel("")
    asked = question or "Where does the time go?"
    foot, strip = _note(shown, note, spent), _legend(used, spent)
    headline(figure, asked, answer(shown, keys), foot, strip, body=ROW * len(shown) * (1 + 0.42 * (tall - 1)) + AXIS)
    return figure


def _failed(panel: Axes, y: int, run: Result, name: str) -> None:
    across = panel.get_yaxis_transform()
    panel.plot([0.018], [y], "x", color=ALARM, ms=6, mew=1.8, transform=across, gid=f"failed:{name}")
    panel.annotate(ending(run), (0.018, y), (9, 0), xycoords=across, color=ALARM, textcoords="offset points", va="center",
                   fontsize=8.5)  # fmt: skip


def _bar(panel: Axes, y: int, one: Breakdown, longest: float, divisor: float) -> set[str]:
    """The parts of one run side by side, its bounds and its interval; the parts that can be seen."""
    left, used = 0.0, set()
    for label, width in one.parts.items():
        left += width
        if width > longest * UNSEEN:
            colour, hatch = LOOKS[label]
            panel.barh(y, width / divisor, 0.66, left=(left - width) / divisor, facecolor=colour, edgecolor="white", lw=0.6,
                       hatch=hatch, gid=f"part:{label}")  # fmt: skip
            used.add(label)
    end = max(one.total, one.no_limit or 0.0)
    for of, dashes in (("no_limit", "-"), ("bound", ":")):
        height = getattr(one, of)
        if height is not None and not (of == "bound" and height == one.no_limit):
            x, span = [height / divisor] * 2, [y - 0.42, y + 0.42]
            panel.plot(x, span, color="white", lw=3.4, zorder=3, solid_capstyle="butt")
            panel.plot(x, span, dashes, color=BLACK, lw=1.7, gid=f"bound:{of}", zorder=3.1)
    if one.interval:
        panel.plot([e / divisor for e in one.interval], [y, y], "|-", color=INK, lw=1.0, ms=6, gid="interval", zorder=4)
        end = max(end, one.interval[1])
    panel.annotate(human("makespan_ns", one.total), (end / divisor, y), (4, 0), textcoords="offset points", va="center",
                   fontsize=8.5)  # fmt: skip
    return used


def _legend(used: set[str], spent: Sequence[Breakdown | None]) -> list[Artist]:
    handles: list[Artist] = [
        Patch(facecolor=colour, hatch=hatch, edgecolor="white", label=label)
        for label, (colour, hatch) in LOOKS.items()
        if label in used
    ]
    if any(one and one.no_limit is not None for one in spent):
        handles.append(Line2D([], [], color=BLACK, lw=1.7, label="without memory limit"))
    if any(one and one.bound is not None and one.bound != one.no_limit for one in spent):
        handles.append(Line2D([], [], color=BLACK, lw=1.7, ls=":", label="bound: what must come in"))
    return handles


def _note(shown: Sequence[Result], note: str, spent: Sequence[Breakdown | None]) -> str:
    bars = "Bars: p10 to p90 over sampled machines." if any(one and one.interval for one in spent) else ""
    oracle = "* reads the future." if any(r.oracle for r in shown) else ""
    return " ".join(part for part in (note, bars, oracle) if part)
