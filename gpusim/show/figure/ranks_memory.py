"""What does each rank hold?  Reserved bytes over time of the best run's ranks; equal ranks share a curve."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.artist import Artist
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from gpusim.results.result import Result
from gpusim.show.steps import visible
from gpusim.show.style import ALARM, DPI, WIDTH, canvas, empty, headline, looks, styled
from gpusim.show.values.ranks_memory import held_by_ranks
from gpusim.show.view import scale

MOST = 16
"""Curves."""


@styled
def draw(results: Sequence[Result], question: str = "") -> Figure:
    """A curve for each class of equal ranks."""
    figure, found = canvas(), held_by_ranks(results)
    if found is None:
        empty(figure, "No run has several ranks whose memory over time is known.")
        return figure
    panel = figure.add_subplot()
    shown = dict(list(found.curves.items())[:MOST])
    last = max(float(time[-1]) for time, _ in shown.values())
    top = max(found.capacity or 0.0, *(float(held.max(initial=0)) for _, held in shown.values()))
    per_time, time_unit = scale("ns", last)
    per_byte, byte_unit = scale("B", top)
    look, handles = looks(list(shown), set()), list[Artist]()
    for name, (time, held) in shown.items():
        at, height = visible(time, held, round(WIDTH * DPI))
        panel.step(at / per_time, height / per_byte, where="post", color=look[name].colour, lw=1.4, gid=f"held:{name}")
        handles.append(Line2D([], [], color=look[name].colour, lw=1.6, label=name))
    if found.capacity is not None:
        panel.axhline(found.capacity / per_byte, color=ALARM, lw=1.2, ls="--", gid="capacity")
        handles.append(Line2D([], [], color=ALARM, lw=1.2, ls="--", label="capacity"))
    panel.set_xlim(0, last / per_time * 1.02)
    panel.set_ylim(0, top / per_byte * 1.10 or 1)
    panel.set_xlabel(f"time [{time_unit}]")
    panel.set_ylabel(f"reserved [{byte_unit}]")
    left = len(found.curves) - len(shown)
    note = f"Run: {found.run}." + (f" {left} more kinds of {found.what}s are not drawn." if left else "")
    headline(figure, question or found.question, found.answer, note, handles)
    return figure
