"""The figure of a question's rows over the axis with the most values, a line for each combination of the others."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from gpusim.show.panels import logarithmic
from gpusim.show.style import canvas, headline, save, styled
from gpusim.studies.serving.folder import save_rows

Rows = list[dict[str, Any]]
Words = dict[str, tuple[Any, ...]]


class Panels(NamedTuple):
    """The columns of the two panels and what their axes say: a time, of which less is better, and a share.

    shown   the text of a tick of times
    answer  (values of the axes in the best row, its time) -> what the figure says
    """

    time: str
    time_label: str
    share: str
    share_label: str
    shown: Callable[[float], str]
    answer: Callable[[str, float], str]


def save_rows_and(draw: Callable[[Rows], Figure], rows: Rows, needs: str, path: Path) -> list[Path]:
    """summary.csv and, where any combination has a number `needs`, the figure as PATH.png, .svg and .pdf."""
    table = path.parent / "summary.csv"
    save_rows(rows, table)
    there = [row for row in rows if needs in row]
    return [table, *save(draw(there), path)] if there else [table]


@styled
def draw_panels(question: str, axes: Words, rows: Rows, of: Panels) -> Figure:
    """Two panels over one axis: the time, and the share."""
    figure = canvas(rows=1)
    over = max(axes, key=lambda name: len(axes[name])) if axes else ""
    left, right = figure.subplots(1, 2)
    _lines_over(left, rows, axes, over, of.time)
    _lines_over(right, rows, axes, over, of.share)
    left.set_ylabel(of.time_label)
    right.set_ylabel(of.share_label)
    times = [row[of.time] for row in rows]
    logarithmic(left, min(times) / 1.3, max(times) * 1.3, of.shown, upright=True)
    right.set_ylim(-0.02, 1.02)
    best = min(rows, key=lambda row: row[of.time])
    answer = of.answer(", ".join(_word_of(name, best[name]) for name in axes), best[of.time])
    headline(figure, question, answer, strip=left.get_legend_handles_labels()[0])
    return figure


def _lines_over(panel: Axes, rows: Rows, axes: Words, over: str, value: str) -> None:
    others = [name for name in axes if name != over]
    places = {str(word): i for i, word in enumerate(axes.get(over, ("",)))}
    ordered = all(word[:1].isdigit() for word in places)
    lines: dict[str, Rows] = {}
    for row in rows:
        lines.setdefault(", ".join(_word_of(name, row[name]) for name in others), []).append(row)
    for name, mine in lines.items():
        x, y = [places[str(row.get(over, ""))] for row in mine], [row[value] for row in mine]
        panel.plot(x, y, marker="o", linestyle="-" if ordered else "", label=name or None, gid="points")
    panel.set_xticks(list(places.values()), [word if word.isdecimal() else _word_of(over, word) for word in places])
    panel.set_xlabel(over)


def _word_of(axis: str, value: Any) -> str:
    """A value of an axis, where nothing is said as what it means; a bare number with the name of its axis."""
    if str(value).isdecimal():
        return f"{axis} {value}"
    return str(value) or {"like": "lru", "cpu": "no CPU"}.get(axis, "none")
