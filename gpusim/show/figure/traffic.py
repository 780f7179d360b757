"""How much is moved?  Bytes per direction, against the least that any eviction policy has to bring in."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.artist import Artist
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from gpusim.base.units import show_bytes
from gpusim.results.result import Result
from gpusim.show.groups import starred
from gpusim.show.panels import row_labels
from gpusim.show.style import ALARM, BLACK, BLUE, ORANGE, canvas, empty, headline, styled
from gpusim.show.values.traffic import traffic
from gpusim.show.view import ORACLE, scale

IN, OUT = ("host to device", BLUE), ("device to host", ORANGE)


@styled
def draw(results: Sequence[Result], question: str = "") -> Figure:
    """Two bars per run, in the order of all figures; a run that failed shows what it had moved until then, and says so."""
    if not results:
        figure = canvas()
        empty(figure, "There are no runs.")
        return figure
    found = traffic(results)
    shown, note = found.runs, found.note
    figure = canvas()
    panel = figure.add_subplot()
    longest = max(max(r.came, r.left, r.least or 0.0) for r in shown)
    divisor, unit = scale("B", longest)
    for y, run in enumerate(shown):
        for (label, colour), moved, offset in ((IN, run.came, -0.18), (OUT, run.left, 0.18)):
            face, hatch = (colour, "") if not run.ending else ("white", "////")
            panel.barh(y + offset, moved / divisor, 0.34, facecolor=face, edgecolor=colour, lw=0.8, hatch=hatch,
                       gid=f"{label}:{run.name}")  # fmt: skip
            words = show_bytes(moved) + (f" until {run.ending}" if label == IN[0] and run.ending else "")
            beside = moved if label == OUT[0] else max(moved, run.least or 0.0)
            panel.annotate(words, (beside / divisor, y + offset), (4, 0), textcoords="offset points", va="center",
                           fontsize=8, color=ALARM if run.ending else None)  # fmt: skip
        if run.least is not None:
            panel.plot([run.least / divisor] * 2, [y - 0.38, y + 0.02], color=BLACK, lw=2.2, solid_capstyle="butt",
                       zorder=4, gid=f"bound:{run.name}")  # fmt: skip
    row_labels(panel, [starred(r.name, r.oracle) for r in shown])
    panel.set_ylim(len(shown) - 0.4, -0.6)
    panel.set_xlim(0, longest / divisor * (1.16 if not any(r.ending for r in shown) else 1.32) or 1)
    panel.grid(axis="y", visible=False)
    panel.grid(axis="x", visible=True)
    panel.set_xlabel(f"moved over the link [{unit}]")
    handles: list[Artist] = [Patch(facecolor=colour, label=label) for label, colour in (IN, OUT)]
    if any(r.least is not None for r in shown):
        handles.append(Line2D([], [], color=BLACK, lw=2.2, label="least that must come in"))
    star = f"{ORACLE} reads the future." if any(r.oracle for r in shown) else ""
    foot = " ".join(part for part in (note, star) if part)
    asked = question or "How much is moved, and how much is needed?"
    headline(figure, asked, found.answer, foot, handles, body=0.38 * len(shown) + 0.62)
    return figure
