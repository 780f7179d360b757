"""The figure of a question about long trainings: effective time over one axis, a line for each value of the next."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from gpusim.base.errors import UnitError
from gpusim.base.units import TIME, parse
from gpusim.show.panels import logarithmic
from gpusim.show.style import canvas, headline, looks, save, styled
from gpusim.studies.failures.questions import TrainingQuestion
from gpusim.studies.serving.folder import save_rows

Rows = list[dict[str, Any]]
EFFECTIVE = "effective [%]"
_UNITS = ((1440.0, "d"), (60.0, "h"), (1.0, "min"), (1 / 60, "s"))


def save_rows_and_figure(asked: TrainingQuestion, rows: Rows, folder: Path) -> list[Path]:
    """summary.csv and, where any combination could be run, the figure, into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "summary.csv"
    save_rows(rows, path)
    there = [row for row in rows if EFFECTIVE in row]
    return [path, *save(draw(asked, there), folder / "failures")] if there else [path]


@styled
def draw(asked: TrainingQuestion, rows: Rows) -> Figure:
    """A panel for each value of an axis, lines over checkpoint intervals; diamonds: a policy chose the interval."""
    axes = asked.axes()
    lines = next((name for name in ("checkpoint", *axes) if name in axes and name != "every"), "")
    panels = next((name for name in axes if name not in ("every", lines)), "")
    values = list(axes.get(panels, ("",)))[:3]
    figure = canvas()
    drawn = figure.subplots(1, len(values), squeeze=False, sharey=True)[0]
    look = looks(str(value) for value in axes.get(lines, ("",)))
    for panel, value in zip(drawn, values, strict=True):
        mine = [row for row in rows if row.get(panels, "") == value]
        _panel(panel, mine, lines, {name: (each.colour, each.marker) for name, each in look.items()})
        panel.set_title(f"{panels} {value}" if panels else "")
    low = min(row[EFFECTIVE] - row["+-"] for row in rows)
    drawn[0].set_ylim(max(0.0, low - 2), 100.5)
    drawn[0].set_ylabel("effective training time [%]")
    best = max(rows, key=lambda row: row[EFFECTIVE])
    said = ", ".join(f"{name} {best[name]}" for name in axes)
    text = f"Best: {said}: {best[EFFECTIVE]:.4g} % of the time is work that counts." if said else ""
    headline(figure, asked.question, text, strip=drawn[0].get_legend_handles_labels()[0])
    return figure


def _panel(panel: Axes, rows: Rows, lines: str, look: dict[str, tuple[str, Any]]) -> None:
    for name, (colour, marker) in look.items():
        mine = sorted((row for row in rows if str(row.get(lines, "")) == name), key=lambda row: float(row["interval [min]"]))
        fixed = [row for row in mine if _fixed(row)]
        x, y = [row["interval [min]"] for row in fixed], [row[EFFECTIVE] for row in fixed]
        panel.errorbar(x, y, yerr=[row["+-"] for row in fixed], color=colour, marker=marker, capsize=2, elinewidth=0.8,
                       label=name or None)  # fmt: skip
        for row in mine:
            if not _fixed(row):
                panel.plot(row["interval [min]"], row[EFFECTIVE], marker="D", markersize=8, color=colour, fillstyle="none",
                           gid="policy")  # fmt: skip
    if rows:
        times = [row["interval [min]"] for row in rows]
        logarithmic(panel, min(times) / 1.4, max(times) * 1.4, _minutes, 1)
    panel.set_xlabel("work between checkpoints")


def _fixed(row: dict[str, Any]) -> bool:
    try:
        parse(row.get("every", "1 h"), TIME)
    except UnitError:
        return False
    return True


def _minutes(value: float) -> str:
    size, unit = next((each for each in _UNITS if value >= each[0]), _UNITS[-1])
    return f"{value / size:.3g} {unit}"
