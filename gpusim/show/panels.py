"""Small multiples: how panels are laid out, and the parts that several figures draw."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator
from matplotlib.transforms import ScaledTranslation, blended_transform_factory

from gpusim.show.style import ALARM, INK, Look, wrapped
from gpusim.show.view import ORACLE

MOST_PANELS = 9


def shape(count: int) -> tuple[int, int]:
    """Rows and columns for so many panels."""
    columns = {1: 1, 2: 2, 3: 3, 4: 2}.get(count, 3)
    return math.ceil(count / columns), columns


def grid(figure: Figure, count: int, **options: Any) -> list[Axes]:
    """`count` panels in reading order; the places left over are empty."""
    rows, columns = shape(count)
    axes: list[Axes] = list(np.ravel(figure.subplots(rows, columns, squeeze=False, **options)))
    for panel in axes[count:]:
        panel.set_axis_off()
    for index, panel in enumerate(axes[:count]):
        if index + columns >= count:  # nothing below it: it shows the labels of its column
            panel.xaxis.set_tick_params(labelbottom=True)
    return axes[:count]


def logarithmic(
    panel: Axes, low: float, high: float, form: Callable[[float], str], columns: int = 1, *, upright: bool = False
) -> None:
    """A logarithmic axis (horizontal, or upright) with as many ticks as there is room for, on so many panels side by side."""
    (panel.set_yscale if upright else panel.set_xscale)("log")
    (panel.set_ylim if upright else panel.set_xlim)(low, high)
    axis = panel.yaxis if upright else panel.xaxis
    decades = math.log10(high / low) * columns
    subs = (1.0, 1.5, 2.0, 3.0, 5.0, 7.0) if decades < 1 else (1.0, 2.0, 5.0) if decades < 2.6 else (1.0,)
    near = MaxNLocator(max(3, 8 // columns), steps=[1, 2, 2.5, 5, 10])  # a decade's ticks would be one
    axis.set_major_locator(near if high < 2.5 * low else LogLocator(subs=subs, numticks=max(3, round(10 / columns))))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda v, _: form(v)))


LABEL = 42  # characters of a line of a row's label


def row_labels(panel: Axes, names: Sequence[str], **options: Any) -> int:
    """A label for each row, from the top, on several lines where it is long; returns the most lines of one."""
    labels = ["\n".join(wrapped(name, LABEL)) for name in names]
    panel.set_yticks(range(len(names)), labels, linespacing=1.0, **options)
    panel.tick_params(axis="y", length=0)
    return max((label.count("\n") + 1 for label in labels), default=1)


def label_width(names: Sequence[str]) -> int:
    """Characters of the longest line of these labels."""
    return max((len(line) for name in names for line in wrapped(name, LABEL)), default=0)


LINE = 96  # characters of a title as wide as the figure
NUMBERS = 15  # characters of a row's labels, where these are numbers


TITLE = 0.16  # inches of each further line of a title


def entitle(panel: Axes, title: str, count: int, labels: int = NUMBERS) -> float:
    """The panel's name above it, on as many lines as one of `count` panels needs beside `labels` characters in its row.

    Returns the inches that lines beyond the first take.
    """
    lines = wrapped(title, int(LINE - 0.8 * labels) // shape(count)[1])
    panel.set_title("\n".join(lines))
    return TITLE * (len(lines) - 1)


LONG = 24  # characters of a label from which a legend beside several panels would take too much of their width


def legend(axes: Sequence[Axes], handles: Sequence[Artist], title: str = "", oracle: bool = False) -> None:
    """The legend beside the top right panel, where it covers no data; below the panels when its labels are long."""
    note = f"{ORACLE} reads the future" if oracle else ""
    longest = max((len(str(handle.get_label())) for handle in handles), default=0)
    figure = axes[0].get_figure(root=True)
    if figure is not None and len(axes) > 1 and longest > LONG:
        rows = math.ceil(len(handles) / (columns := 3 if longest <= 36 else 2))
        figure.set_size_inches(figure.get_figwidth(), figure.get_figheight() + 0.2 * rows)
        made = figure.legend(
            handles=list(handles), loc="outside lower left", ncols=columns, alignment="left",
            title=", ".join(t for t in (title.replace("\n", ", "), note) if t), columnspacing=1.6,
        )  # fmt: skip
        made.get_title().set_color(INK)
        return
    corner = axes[min(len(axes), shape(len(axes))[1]) - 1]
    made = corner.legend(
        handles=list(handles), loc="upper left", bbox_to_anchor=(1.02, 1.02), borderaxespad=0, alignment="left",
        title="\n".join(t for t in (title, note) if t), labelspacing=0.55, borderpad=0.2,
    )  # fmt: skip
    made.get_title().set_color(INK)
    made.get_title().set_linespacing(1.35)


BAND = 0.12  # share of a panel's height that the band of failed runs takes


def failed_band(panels: Sequence[Axes], marks: Sequence[Sequence[tuple[float, str, Look]]], label: str) -> None:
    """A band along the top of panels that share limits, with a mark for each failed run: (x, name, look) per panel.

    Marks of one position stand side by side.  Call it when the limits are final; it makes room for itself.
    """
    low, high = panels[0].get_ylim()
    if panels[0].get_yscale() == "log":
        top = low * (high / low) ** (1 / (1 - BAND))
        middle = low * (top / low) ** (1 - BAND * 0.45)
    else:
        top = low + (high - low) / (1 - BAND)
        middle = low + (top - low) * (1 - BAND * 0.45)
    ticks = [float(t) for t in panels[0].get_yticks() if low <= t <= high]
    labels = panels[0].yaxis.get_major_formatter().format_ticks(ticks)
    for panel, there in zip(panels, marks, strict=True):
        panel.set_ylim(low, top)
        panel.set_yticks([*ticks, middle], [*labels, label])
        panel.minorticks_off()
        failed = panel.yaxis.get_major_ticks()[-1]
        failed.label1.set(color=ALARM, fontsize=8, linespacing=1.1)
        failed.tick1line.set_visible(False)
        failed.gridline.set_visible(False)
        band = Rectangle((0, 1 - BAND * 0.9), 1, BAND * 0.9, transform=panel.transAxes, facecolor=ALARM, alpha=0.09)
        panel.add_patch(band)
        _failed_marks(panel, there)


def _failed_marks(panel: Axes, marks: Sequence[tuple[float, str, Look]]) -> None:
    figure, place = panel.get_figure(root=True), panel.get_subplotspec()
    if not marks or figure is None or place is None:
        return
    positions: dict[float, list[tuple[str, Look]]] = {}
    for x, name, look in marks:
        positions.setdefault(x, []).append((name, look))
    # Marks of one position must not reach those of the next, nor leave the panel; widths are in points, the panel's a guess.
    low, high = panel.get_xlim()
    rising = sorted(positions)
    gap = min([*(b - a for a, b in pairwise(rising)), 1.6 * (rising[0] - low), 1.6 * (high - rising[-1])]) / (high - low)
    width = 72 * figure.get_figwidth() * 0.66 / place.get_gridspec().ncols
    step = min(8.0, 0.92 * width * gap / max(map(len, positions.values())))
    across = blended_transform_factory(panel.transData, panel.transAxes)
    for x, there in positions.items():
        for i, (name, look) in enumerate(there):
            beside = ScaledTranslation((i - (len(there) - 1) / 2) * step / 72, 0, figure.dpi_scale_trans)
            size = min(5.5, max(3.0, step)) * look.grow
            panel.plot(
                [x], [1 - BAND * 0.45], look.marker, color=look.colour, ms=size, mec="white", mew=0.4,
                transform=across + beside, gid=f"failed:{name}", clip_on=False, zorder=5,
            )  # fmt: skip
