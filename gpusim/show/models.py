"""The figure of a question about many models: first tokens, and requests that wait for a load, over one axis."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from gpusim.show.experts import lines_over, word_of
from gpusim.show.panels import logarithmic
from gpusim.show.style import canvas, headline, save, styled
from gpusim.studies.models.questions import ModelsQuestion
from gpusim.studies.serving.folder import save_rows

Rows = list[dict[str, Any]]
LATE = "TTFT p99 [s]"


def save_rows_and_figure(asked: ModelsQuestion, rows: Rows, folder: Path) -> list[Path]:
    """summary.csv and, where any combination could be run, the figure, into a folder."""
    path = folder / "summary.csv"
    save_rows(rows, path)
    there = [row for row in rows if LATE in row]
    return [path, *save(draw(asked, there), folder / "models")] if there else [path]


@styled
def draw(asked: ModelsQuestion, rows: Rows) -> Figure:
    """Two panels: the 99th percentile of first tokens, and the share of requests that wait for a load."""
    figure = canvas(rows=1)
    axes = asked.axes()
    over = max(axes, key=lambda name: len(axes[name])) if axes else ""
    left, right = figure.subplots(1, 2)
    lines_over(left, rows, axes, over, LATE)
    lines_over(right, rows, axes, over, "cold")
    left.set_ylabel("99th percentile of first tokens [s]")
    right.set_ylabel("requests that wait for a load")
    times = [row[LATE] for row in rows]
    logarithmic(left, min(times) / 1.3, max(times) * 1.3, lambda s: f"{s:,.3g}", upright=True)
    right.set_ylim(-0.02, 1.02)
    best = min(rows, key=lambda row: row[LATE])
    said = ", ".join(word_of(name, best[name]) for name in axes)
    answer = f"Soonest: {said}, 99 % of first tokens within {best[LATE]:,.3g} s."
    headline(figure, asked.question, answer, strip=left.get_legend_handles_labels()[0])
    return figure
