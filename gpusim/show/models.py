"""The figure of a question about many models: first tokens, and requests that wait for a load, over one axis."""

from __future__ import annotations

from pathlib import Path

from matplotlib.figure import Figure

from gpusim.show.over_axis import Panels, Rows, draw_panels, save_rows_and
from gpusim.studies.models.questions import ModelsQuestion

LATE = "TTFT p99 [s]"
PANELS = Panels(
    LATE, "99th percentile of first tokens [s]", "cold", "requests that wait for a load", lambda s: f"{s:,.3g}",
    lambda words, best: f"Soonest: {words}, 99 % of first tokens within {best:,.3g} s.",
)  # fmt: skip


def save_rows_and_figure(asked: ModelsQuestion, rows: Rows, folder: Path) -> list[Path]:
    """summary.csv and, where any combination could be run, the figure, into a folder."""
    return save_rows_and(lambda there: draw(asked, there), rows, LATE, folder / "models")


def draw(asked: ModelsQuestion, rows: Rows) -> Figure:
    """Two panels over the axis with the most values."""
    return draw_panels(asked.question, asked.axes(), rows, PANELS)
