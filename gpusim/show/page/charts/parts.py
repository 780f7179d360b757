"""What all charts are made of: panels of traces, a legend that hides, words beside the pointer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from html import escape
from typing import Any

from gpusim.results.metrics import metric as declared
from gpusim.show.style import ALARM, INK, SOFT, Look
from gpusim.show.view import human

__all__ = [
    "ALARM", "INK", "SOFT", "LegendEntry", "PlotChart", "PlotPanel", "PlotView", "bars_height", "exact", "hover", "marker",
    "plain",
]  # fmt: skip

ROW, AROUND = 22, 84  # pixels of a bar, and of what stands above and below all of them
_SYMBOLS = {
    "o": "circle", "s": "square", "D": "diamond", "^": "triangle-up", "v": "triangle-down", "P": "cross", "<": "triangle-left",
    ">": "triangle-right", "h": "hexagon", "p": "pentagon", "*": "star", "X": "x", "d": "diamond-tall", "8": "octagon",
}  # fmt: skip
_UNITS = {"ns": " ns", "B": " B", "1/s": "/s", "1": "", "": ""}


@dataclass(frozen=True)
class LegendEntry:
    """One word of the legend; traces whose `legendgroup` it is are hidden and shown with it."""

    name: str
    colour: str
    mark: str = "line"  # line, dash, dot, box, or a symbol of Plotly
    hidden: bool = False


@dataclass(frozen=True)
class PlotPanel:
    """One plot: traces and layout as Plotly takes them; `height` in pixels."""

    title: str
    data: list[dict[str, Any]]
    layout: dict[str, Any]
    height: int = 320


@dataclass(frozen=True)
class PlotView:
    """Panels that stand side by side; a chart of several shows one at a time."""

    label: str
    panels: Sequence[PlotPanel]


@dataclass(frozen=True)
class PlotChart:
    """One figure: the question over it, what it answers, a note, and what is drawn."""

    title: str
    answer: str
    views: Sequence[PlotView]
    legend: Sequence[LegendEntry] = field(default=())
    note: str = ""

    def plain(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def symbol(look: Look) -> str:
    """The marker of a line, in Plotly's words."""
    return _SYMBOLS[look.marker]


def marker(look: Look, size: float = 8) -> dict[str, Any]:
    """Colour and shape of a line's points."""
    return {"color": look.colour, "symbol": symbol(look), "size": size * look.grow}


def hover(lines: Mapping[str, Sequence[str]] | Sequence[str]) -> dict[str, Any]:
    """The words beside the pointer at each point, and nothing else."""
    words = list(lines)
    return {"text": [word.replace("\n", "<br>") for word in words], "hovertemplate": "%{text}<extra></extra>"}


def exact(metric: str, value: float | None) -> str:
    """A value as people read it, and to the last digit: "1.23 s (1,234,567,890 ns)"."""
    if value is None:
        return "-"
    unit = declared(metric).unit
    digits = f"{value:,.0f}" if unit in ("ns", "B") or value == round(value) else f"{value:,.7g}"
    said = human(metric, value)
    return said if said in (digits, f"{digits}×") else f"{said} ({digits}{_UNITS.get(unit, '')})"


def bars_height(rows: int) -> int:
    """Pixels of a panel of so many horizontal bars."""
    return AROUND + ROW * max(rows, 3)


def plain(text: str) -> str:
    """Text that Plotly shows as it is."""
    return escape(text, quote=False)
