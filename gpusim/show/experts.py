"""The figure of a question about experts: the time of a token over one axis, a line for each combination of the others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from gpusim.show.panels import logarithmic
from gpusim.show.style import canvas, headline, save, styled
from gpusim.studies.experts.questions import ExpertQuestion
from gpusim.studies.serving.folder import save_rows

Rows = list[dict[str, Any]]
TOKEN = "token [ms]"


def save_rows_and_figure(asked: ExpertQuestion, rows: Rows, folder: Path) -> list[Path]:
    """summary.csv and, where any combination could be run, the figure, into a folder."""
    path = folder / "summary.csv"
    save_rows(rows, path)
    there = [row for row in rows if TOKEN in row]
    return [path, *save(draw(asked, there), folder / "experts")] if there else [path]


@styled
def draw(asked: ExpertQuestion, rows: Rows) -> Figure:
    """Two panels: the time of a token, and the share of experts found on the GPU; over the axis with the most values."""
    figure = canvas(rows=1)
    axes = asked.axes()
    over = max(axes, key=lambda name: len(axes[name])) if axes else ""
    left, right = figure.subplots(1, 2)
    lines_over(left, rows, axes, over, TOKEN)
    lines_over(right, rows, axes, over, "hit")
    left.set_ylabel("time of a token [ms]")
    right.set_ylabel("uses that find their expert on the GPU")
    times = [row[TOKEN] for row in rows]
    logarithmic(left, min(times) / 1.3, max(times) * 1.3, lambda ms: f"{ms:,.0f}" if ms >= 100 else f"{ms:.3g}", upright=True)
    right.set_ylim(-0.02, 1.02)
    best = min(rows, key=lambda row: row[TOKEN])
    said = ", ".join(word_of(name, best[name]) for name in axes)
    answer = f"Fastest: {said}, {best[TOKEN]:,.3g} ms a token."
    headline(figure, asked.question, answer, strip=left.get_legend_handles_labels()[0])
    return figure


def lines_over(panel: Axes, rows: Rows, axes: dict[str, tuple[Any, ...]], over: str, value: str) -> None:
    """The value over one axis, a line for each combination of the others."""
    others = [name for name in axes if name != over]
    places = {str(word): i for i, word in enumerate(axes.get(over, ("",)))}
    ordered = all(word[:1].isdigit() for word in places)
    lines: dict[str, Rows] = {}
    for row in rows:
        lines.setdefault(", ".join(word_of(name, row[name]) for name in others), []).append(row)
    for name, mine in lines.items():
        x, y = [places[str(row.get(over, ""))] for row in mine], [row[value] for row in mine]
        panel.plot(x, y, marker="o", linestyle="-" if ordered else "", label=name or None, gid="points")
    panel.set_xticks(list(places.values()), [word if word.isdecimal() else word_of(over, word) for word in places])
    panel.set_xlabel(over)


def word_of(axis: str, value: Any) -> str:
    """A value of an axis, where nothing is said as what it means; a bare number with the name of its axis."""
    if str(value).isdecimal():
        return f"{axis} {value}"
    return str(value) or {"like": "lru", "cpu": "no CPU"}.get(axis, "none")
