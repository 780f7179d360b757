"""Which combinations of two axes are good?  A cell per combination, with its number."""

from __future__ import annotations

import math
from collections.abc import Sequence

import matplotlib
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm, Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

from gpusim.results.metrics import metric as declared
from gpusim.results.result import Result
from gpusim.show.answer import answer
from gpusim.show.groups import starred
from gpusim.show.panels import MOST_PANELS, entitle, label_width, row_labels
from gpusim.show.style import INK, SOFT, canvas, empty, headline, styled, wrapped
from gpusim.show.values.heat import HeatCell, HeatMap, HeatPanel, axes_of, heat, label_of
from gpusim.show.view import ORACLE, human

ROW, BARS, AXES = 0.3, 0.17, 0.85  # inches: a row, the second line of a cell, title and axis of a panel
CELL = 0.62  # inches that a number needs
COLUMN = 30  # characters of a line of a column's label
TURNED = 9  # characters of a column's label from which it is turned
FAR = 6.0  # largest over smallest value from which colours are logarithmic
PALE = "#E3B5B2"
MAP = "cividis_r"  # light is little; for colour-blind people, and in grey print


@styled
def draw(results: Sequence[Result], question: str = "", metric: str = "") -> Figure:
    """Memory or another number along the columns, policies down the rows; a frame marks the best of each column."""
    if not results or not all(axes_of(results)):
        figure = canvas()
        empty(figure, "Fewer than two axes vary.")
        return figure
    found = heat(results, metric)
    known = [panel for panel in found.panels if _values([panel])]
    shown = (known or list(found.panels))[:MOST_PANELS]
    columns = _beside(found, len(shown))
    rows = math.ceil(len(shown) / columns)
    figure = canvas()
    axes = list(figure.subplots(rows, columns, squeeze=False, sharey=True).ravel())
    for panel in axes[len(shown) :]:
        panel.set_axis_off()
    bars = any(cell and cell.interval for panel in shown for row in panel.cells for cell in row)
    shared = declared(found.metric).unit in ("1", "1/s")
    everything = _values(shown)
    lines, tall = 1, 0.0
    for index, (panel, place) in enumerate(zip(axes, shown, strict=False)):
        tall = max(tall, entitle(panel, place.name, columns, label_width(found.rows)))
        lines = max(lines, _cells(panel, found, place, everything if shared else _values([place]), bars=bars))
        panel.tick_params(axis="y", labelleft=index % columns == 0)
        panel.set_ylabel(label_of(found.down) if index % columns == 0 else "")
        panel.set_xlabel(label_of(found.across) if index + columns >= len(shown) else "")
    turned = max(map(len, found.columns)) > TURNED
    high = len(found.rows) * max(ROW + (BARS if bars else 0.0), 0.16 * lines) + AXES
    high += tall + (0.038 * min(max(map(len, found.columns)), COLUMN) + 0.05 if turned else 0.0)
    note = f"{len(shown)} of {len(found.panels)} panels are shown. " if len(shown) < len(found.panels) else ""
    note += f"No {declared(found.metric).label} is known of the others. " if 0 < len(known) < len(found.panels) else ""
    note += "" if shared or len(shown) == 1 else "Each panel has its own colours. "
    note += "Below: p10 to p90 over sampled machines. " if bars else ""
    note += f"{ORACLE} reads the future." if any(c and c.oracle for p in shown for row in p.cells for c in row) else ""
    strip: list[Artist] = [Rectangle((0, 0), 1, 1, facecolor="white", edgecolor=INK, lw=1.6, label="best of its column")]
    if any(cell and cell.value is None and cell.ending for p in shown for row in p.cells for cell in row):
        strip.append(Patch(facecolor="white", edgecolor=PALE, hatch="////", lw=0.4, label="does not finish"))
    what = declared(found.metric).label.capitalize()
    asked = question or f"{what} by {label_of(found.down) or 'policy'} and {label_of(found.across)}"
    headline(figure, asked, answer(results, found.metric, most=320), note, strip, body=rows * high)
    return figure


def _beside(found: HeatMap, count: int) -> int:
    """Panels side by side: as many as leave a cell the width of its number."""
    room = 7.6 - 0.075 * label_width(found.rows)
    for columns in (3, 2):
        if count >= columns and (count, columns) != (4, 3) and room / columns / len(found.columns) >= CELL:
            return columns
    return 1


def _values(panels: Sequence[HeatPanel]) -> list[float]:
    return [c.value for panel in panels for row in panel.cells for c in row if c and c.value is not None]


def _cells(panel: Axes, found: HeatMap, place: HeatPanel, values: Sequence[float], *, bars: bool) -> int:
    """Draws the cells; the most lines of a row's label."""
    low, high = min(values, default=1.0), max(values, default=1.0)
    norm = LogNorm(low, high) if low > 0 and high / low > FAR else Normalize(low, high if high > low else low + 1)
    colours = matplotlib.colormaps[MAP if declared(found.metric).better != "higher" else MAP.removesuffix("_r")]
    future = set()
    for y, row in enumerate(place.cells):
        for x, cell in enumerate(row):
            if cell is None:
                continue
            future |= {y} if cell.oracle else set()
            at = 0.06 + 0.88 * float(norm(cell.value)) if cell.value is not None else 0.0
            _cell(panel, x, y, cell, found, colours(at), bars=bars)
    for x, best in enumerate(place.best):
        if best is not None:
            frame = Rectangle((x - 0.46, best - 0.44), 0.92, 0.88, fill=False, ec=INK, lw=1.6, gid=f"best:{x}", zorder=4)
            panel.add_patch(frame)
    panel.set_xlim(-0.5, len(found.columns) - 0.5)
    panel.set_ylim(len(found.rows) - 0.5, -0.5)
    panel.grid(visible=False)
    panel.spines[:].set_visible(False)
    turned = max(map(len, found.columns)) > TURNED
    names = ["\n".join(wrapped(c, COLUMN)) for c in found.columns]
    panel.set_xticks(range(len(names)), names, rotation=30 if turned else 0, ha="right" if turned else "center", fontsize=8)
    panel.tick_params(axis="x", length=0)
    return row_labels(panel, [starred(name, y in future) for y, name in enumerate(found.rows)], fontsize=8)


def _cell(
    panel: Axes, x: int, y: int, cell: HeatCell, found: HeatMap, colour: tuple[float, float, float, float], *, bars: bool
) -> None:
    name = f"{found.rows[y]}:{found.columns[x]}"
    if cell.value is None and not cell.ending:
        panel.text(x, y, "–", ha="center", va="center", fontsize=8.5, color=SOFT)  # it has no such number
        return
    if cell.value is None:
        panel.add_patch(Rectangle((x - 0.49, y - 0.48), 0.98, 0.96, facecolor="white", edgecolor=PALE, hatch="////", lw=0.4,
                                  gid=f"failed:{name}"))  # fmt: skip
        return
    red, green, blue, _ = colour
    dark = 0.299 * red + 0.587 * green + 0.114 * blue < 0.55
    panel.add_patch(Rectangle((x - 0.49, y - 0.48), 0.98, 0.96, facecolor=(red, green, blue), lw=0, gid=f"cell:{name}"))
    ink = "white" if dark else INK
    said = human(found.metric, cell.value) + ("!" if cell.ending else "")
    panel.text(x, y - (0.16 if bars and cell.interval else 0), said, ha="center", va="center", fontsize=8.5, color=ink)
    if bars and cell.interval:
        ends = "–".join(human(found.metric, end).removesuffix("×") for end in cell.interval)
        panel.text(x, y + 0.24, ends, ha="center", va="center", fontsize=8, color=ink)
