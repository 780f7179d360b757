"""Which allocator wastes least?  Four measures of fragmentation, and what is reserved against what is used."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from gpusim.results.result import Result
from gpusim.show.groups import starred
from gpusim.show.moments import axis, moments, rows, timed
from gpusim.show.steps import visible
from gpusim.show.style import ALARM, DPI, HEIGHT, INK, SOFT, WIDTH, Look, canvas, empty, headline, looks, styled, wrapped
from gpusim.show.values.waste import MEASURES, waste, words
from gpusim.show.view import scale


@styled
def draw(results: Sequence[Result], question: str = "") -> Figure:
    """Bars of the four measures per allocator above, reserved (line) and allocated (dotted) bytes over time below."""
    if not results:
        figure = canvas()
        empty(figure, "There are no runs.")
        return figure
    found = waste(results)
    shown, names, note = found.shown, [run.name for run in found.runs], found.note
    look = looks(names, [n for n, r in zip(names, shown, strict=True) if r.oracle])
    tall = max(len(shown), 4)
    figure = canvas(height=max(HEIGHT, 0.22 * tall + 3.9))
    layout = figure.add_gridspec(2, len(MEASURES), height_ratios=(0.22 * tall + 0.4, 2.4))
    first: Axes | None = None
    for column, (title, meaning, _) in enumerate(MEASURES):
        panel = figure.add_subplot(layout[0, column], sharey=first)
        first = first or panel
        _bars(panel, title, meaning, [(r.measures[title], look[r.name], not r.ending) for r in found.runs])
        panel.tick_params(axis="y", length=0, labelleft=column == 0)
    assert first is not None
    first.set_yticks(range(len(shown)), [starred(n, r.oracle) for n, r in zip(names, shown, strict=True)])
    first.set_ylim(tall - 0.4, -0.6)
    _over_time(figure.add_subplot(layout[1, :]), shown, names, look)
    if any(not r.finished for r in shown):
        note = f"{note} Hatched: until the run stopped.".strip()
    headline(figure, question or "Which allocator wastes least memory?", found.answer, note)
    return figure


def _bars(panel: Axes, title: str, meaning: str, rows: Sequence[tuple[float | None, Look, bool]]) -> None:
    """One bar per (value, look, finished); hatched when the run did not finish."""
    panel.set_title(title)
    panel.set_xlabel("\n".join(wrapped(meaning, 14)), fontsize=8)
    for y, (number, look, finished) in enumerate(rows):
        if number is not None:
            face, hatch = (look.colour, "") if finished else ("white", "////")
            panel.barh(y, number, 0.66, facecolor=face, edgecolor=look.colour, lw=0.8, hatch=hatch,
                       gid=f"{title}:{y}")  # fmt: skip
        panel.annotate(words(title, number), (number or 0.0, y), (3, 0), textcoords="offset points", va="center", fontsize=8)
    largest = max((v for v, _, _ in rows if v is not None), default=0.0)
    panel.set_xlim(0, (largest or 1.0) * 1.5)
    panel.set_xticks([])
    panel.spines["bottom"].set_visible(False)
    panel.grid(visible=False)


def _over_time(panel: Axes, shown: Sequence[Result], names: Sequence[str], look: dict[str, Look]) -> None:
    known = [(r, n) for r, n in zip(shown, names, strict=True) if rows(r)]
    if not known:
        panel.set_axis_off()
        panel.text(0.5, 0.5, "No run recorded its memory over time.", ha="center", color=SOFT, transform=panel.transAxes)
        return
    known = [(r, n) for r, n in known if timed(r) == timed(known[0][0])]
    per_time, label = axis([r for r, _ in known], max(float(moments(r)[-1]) for r, _ in known))
    capacity = max((float(r.spec.get("capacity") or 0) for r, _ in known), default=0.0)
    highest = max(float(np.max(r.timeline["reserved_bytes"], initial=0)) for r, _ in known)
    per_byte, byte_unit = scale("B", highest)
    for rank, (run, name) in enumerate(known):
        time, width = moments(run) / per_time, 2.4 - 1.3 * rank / max(1, len(known) - 1)
        one = look[name]
        for level, thick, dashes in (("reserved", width, one.line), ("allocated", 0.9, ":")):
            points = visible(time, run.timeline[f"{level}_bytes"] / per_byte, round(WIDTH * DPI))
            panel.step(*points, where="post", color=one.colour, lw=thick, ls=dashes, gid=f"{level}:{name}")
        if not run.finished:
            last = run.timeline["reserved_bytes"][-1:] / per_byte
            panel.plot(time[-1:], last, "x", color=ALARM, ms=8, mew=2.2, clip_on=False, gid=f"failed:{name}", zorder=5)
    if 0 < capacity < 1.3 * highest:
        panel.axhline(capacity / per_byte, color=ALARM, lw=1.1, ls="--", gid="capacity")
        panel.annotate("capacity", (1, capacity / per_byte), (-2, 2), xycoords=panel.get_yaxis_transform(), ha="right",
                       textcoords="offset points", fontsize=8, color=ALARM)  # fmt: skip
    panel.set_xlim(left=0)
    panel.set_ylim(0, max(highest, capacity if capacity < 1.3 * highest else 0) / per_byte * 1.08 or 1)
    panel.set_xlabel(label)
    panel.set_ylabel(f"memory [{byte_unit}]")
    handles = [Line2D([], [], color=look[n].colour, ls=look[n].line, lw=2, label=n) for _, n in known]
    handles += [
        Line2D([], [], color=INK, lw=1.6, label="reserved"),
        Line2D([], [], color=INK, lw=0.9, ls=":", label="allocated"),
    ]
    if any(not r.finished for r, _ in known):
        handles.append(Line2D([], [], color=ALARM, marker="x", ls="", ms=7, mew=2, label="the run stops"))
    panel.legend(handles=handles, loc="upper left", bbox_to_anchor=(1.01, 1.04), borderaxespad=0, labelspacing=0.35)
