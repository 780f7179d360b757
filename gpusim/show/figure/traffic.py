"""How much is moved?  Bytes per direction, against the least that any eviction policy has to bring in."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.artist import Artist
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from gpusim.base.units import show_bytes
from gpusim.results.result import Result
from gpusim.show.groups import in_order, starred
from gpusim.show.panels import row_labels
from gpusim.show.style import ALARM, BLACK, BLUE, ORANGE, canvas, empty, headline, styled
from gpusim.show.view import ORACLE, ending, pick, ratio, run_name, scale, value, varying

MOST = 14
IN, OUT = ("h2d_bytes", "host to device", BLUE), ("d2h_bytes", "device to host", ORANGE)
BOUND = "bound_swap_in_bytes"


@styled
def draw(results: Sequence[Result], question: str = "") -> Figure:
    """Two bars per run, in the order of all figures; a run that failed shows what it had moved until then, and says so."""
    if not results:
        figure = canvas()
        empty(figure, "There are no runs.")
        return figure
    shown, note = pick(results, MOST)
    keys = varying(shown)
    shown = in_order(shown, results)
    figure = canvas()
    panel = figure.add_subplot()
    longest = max(max(value(r, name) or 0.0 for name in (IN[0], OUT[0], BOUND)) for r in shown)
    divisor, unit = scale("B", longest)
    for y, run in enumerate(shown):
        bound = value(run, BOUND)
        for (name, label, colour), offset in ((IN, -0.18), (OUT, 0.18)):
            moved = value(run, name) or 0.0
            face, hatch = (colour, "") if run.finished else ("white", "////")
            panel.barh(y + offset, moved / divisor, 0.34, facecolor=face, edgecolor=colour, lw=0.8, hatch=hatch,
                       hatchcolor=colour, gid=f"{label}:{run_name(run, keys)}")  # fmt: skip
            words = show_bytes(moved) + (f" until {ending(run)}" if name == IN[0] and not run.finished else "")
            beside = moved if name == OUT[0] else max(moved, bound or 0.0)
            panel.annotate(words, (beside / divisor, y + offset), (4, 0), textcoords="offset points", va="center",
                           fontsize=8, color=None if run.finished else ALARM)  # fmt: skip
        if bound is not None:
            panel.plot([bound / divisor] * 2, [y - 0.38, y + 0.02], color=BLACK, lw=2.2, solid_capstyle="butt",
                       zorder=4, gid=f"bound:{run_name(run, keys)}")  # fmt: skip
    row_labels(panel, [starred(run_name(r, keys), r.oracle) for r in shown])
    panel.set_ylim(len(shown) - 0.4, -0.6)
    panel.set_xlim(0, longest / divisor * (1.16 if all(r.finished for r in shown) else 1.32) or 1)
    panel.grid(axis="y", visible=False)
    panel.grid(axis="x", visible=True)
    panel.set_xlabel(f"moved over the link [{unit}]")
    handles: list[Artist] = [Patch(facecolor=colour, label=label) for _, label, colour in (IN, OUT)]
    if any(value(r, BOUND) is not None for r in shown):
        handles.append(Line2D([], [], color=BLACK, lw=2.2, label="least that must come in"))
    star = f"{ORACLE} reads the future." if any(r.oracle for r in shown) else ""
    foot = " ".join(part for part in (note, star) if part)
    asked = question or "How much is moved, and how much is needed?"
    headline(figure, asked, _answer(shown, keys), foot, handles, body=0.38 * len(shown) + 0.62)
    return figure


def _moved(run: Result) -> float:
    return (value(run, IN[0]) or 0.0) + (value(run, OUT[0]) or 0.0)


def _answer(shown: Sequence[Result], keys: Sequence[str]) -> str:
    finished = sorted([r for r in shown if r.finished and not r.oracle] or [r for r in shown if r.finished], key=_moved)
    if not finished:
        return "No run finished."
    if not any(_moved(r) for r in finished):
        return "Nothing is moved."
    sentences = []
    for run, word in ((finished[0], "least"), (finished[-1], "most")):
        if run is finished[0] and word == "most":
            break
        subject = f"{run_name(run, keys)} moves {word}: " if len(finished) > 1 else "Moved: "
        above = ratio(value(run, IN[0]), value(run, BOUND))
        over = f" ({above:.2g} times what must come in)" if above is not None else ""
        sentences.append(f"{subject}{show_bytes(value(run, IN[0]) or 0)} in{over}, {show_bytes(value(run, OUT[0]) or 0)} out.")
    return " ".join(sentences)
