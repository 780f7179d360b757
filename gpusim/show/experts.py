"""The figure of a question about experts: the time of a token, and experts found on the GPU, over one axis."""

from __future__ import annotations

from pathlib import Path

from matplotlib.figure import Figure

from gpusim.show.over_axis import Panels, Rows, draw_panels, save_rows_and
from gpusim.studies.experts.questions import ExpertQuestion

TOKEN = "token [ms]"
PANELS = Panels(
    TOKEN, "time of a token [ms]", "hit", "uses that find their expert on the GPU",
    lambda ms: f"{ms:,.0f}" if ms >= 100 else f"{ms:.3g}", lambda words, best: f"Fastest: {words}, {best:,.3g} ms a token.",
)  # fmt: skip


def save_rows_and_figure(asked: ExpertQuestion, rows: Rows, folder: Path) -> list[Path]:
    """summary.csv and, where any combination could be run, the figure, into a folder."""
    return save_rows_and(lambda there: draw(asked, there), rows, TOKEN, folder / "experts")


def draw(asked: ExpertQuestion, rows: Rows) -> Figure:
    """Two panels over the axis with the most values."""
    return draw_panels(asked.question, asked.axes(), rows, PANELS)
