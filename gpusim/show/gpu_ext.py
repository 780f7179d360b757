"""The study of gpu_ext in a figure: published times and ours, a line for each case."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter

from gpusim.show.style import BLUE, GREY, INK, ORANGE, canvas, headline, styled

FROM = 10.0  # ms: below it nothing pages
APART = "whole run"  # ends the name of a group of times that hold the others', and stand in the page alone


@styled
def draw(rows: Sequence[Mapping[str, Any]]) -> Figure:
    """rows: what `studies.gpu_ext.study.reproduce` makes; of a case that was measured twice the first."""
    shown = {
        (row["group"], row["case"]): row for row in rows[::-1]
        if row["ours"] is not None and row["published"] >= FROM and not row["group"].endswith(APART)
    }  # fmt: skip
    ordered = sorted(shown.values(), key=lambda row: (row["group"], row["published"]))
    figure = canvas()
    panel = figure.add_subplot()
    for y, row in enumerate(ordered):
        panel.plot([row["from"], row["to"]], [y + 0.16] * 2, color=GREY, lw=2.2, solid_capstyle="butt", gid=f"measured {y}")
        panel.plot([row["published"]], [y + 0.16], "o", color=INK, ms=4.5, gid=f"published {y}")
        low, high = row["ours_low"], row["ours_high"]
        colour = ORANGE if abs(row["difference"]) > 0.3 else BLUE
        panel.plot([low, high], [y - 0.16] * 2, color=colour, lw=2.2, solid_capstyle="butt", gid=f"interval {y}")
        panel.plot([(low + high) / 2], [y - 0.16], "D", color=colour, ms=4, gid=f"ours {y}")
    panel.set_xscale("log")
    panel.xaxis.set_major_formatter(FuncFormatter(lambda ms, at: f"{ms:,g}"))
    panel.set_yticks(range(len(ordered)), [f"{row['group']}: {row['case']}" for row in ordered])
    panel.set_ylim(len(ordered) - 0.4, -0.6)
    panel.set_xlabel("ms of an iteration")
    panel.grid(axis="x")
    near = sum(abs(row["difference"]) <= 0.3 for row in ordered)
    marks = [Line2D([], [], color=INK, marker="o", ls="", label="published, median"),
             Line2D([], [], color=GREY, lw=2.2, label="its iterations"),
             Line2D([], [], color=BLUE, marker="D", lw=2.2, label="ours, 0.5 to 1.2 GiB of context"),
             Line2D([], [], color=ORANGE, marker="D", lw=2.2, label="ours, more than 30 % away")]  # fmt: skip
    headline(
        figure, "Does the driver's model say what an RTX 5090 takes once memory is short?",
        f"{near} of {len(ordered)} cases that page are within 30 %; only "
        "the slices of pairs were chosen in sight of them.", strip=marks,
        body=0.55 + 0.26 * len(ordered),
    )  # fmt: skip
    return figure
