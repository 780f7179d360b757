"""How figures look: one colour and marker per policy everywhere, sizes for screen and print, the same bytes every time.

Figures are matplotlib objects (`Figure` on an Agg canvas); pyplot is never imported, so nothing is global and no
display is needed.  Colours are those of Okabe and Ito ("Color Universal Design", 2008) and of Paul Tol ("Colour
schemes", 2021), which people with any common colour blindness tell apart; a marker tells them apart in grey print too.
"""

from __future__ import annotations

import functools
import importlib
import io
import math
import re
import textwrap
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import matplotlib
from cycler import cycler
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.font_manager import fontManager

from gpusim.base.files import write_atomic
from gpusim.show import font

P = ParamSpec("P")
R = TypeVar("R")

# 8 in at 150 dpi are 1200 px; text of 9 pt stays above 8 pt when the figure fills the text width of an A4 page.
WIDTH, HEIGHT, DPI = 8.0, 14 / 3, 150

INK, SOFT, FAINT, PAPER = "#1F2430", "#5B6270", "#D5D9E0", "#FFFFFF"
ALARM, LIMIT = "#B3261E", "#B3261E"

BLUE, SKY, GREEN, ORANGE, VERMILION, PINK = "#0072B2", "#56B4E9", "#009E73", "#E69F00", "#D55E00", "#CC79A7"
INDIGO, WINE, OLIVE, GREY, BLACK = "#332288", "#882255", "#7F7A1C", "#8A8F99", "#000000"

COLOURS = (BLUE, ORANGE, GREEN, PINK, VERMILION, SKY, INDIGO, WINE, OLIVE, GREY)

RC: dict[str, object] = {
    "axes.prop_cycle": cycler(color=COLOURS),
    "figure.dpi": DPI,
    "savefig.dpi": DPI,
    "font.family": [font.NAME, "DejaVu Sans"],  # ours, then matplotlib's own: the same on every machine
    "font.size": 9,
    "text.parse_math": False,  # a name may hold a dollar sign
    "axes.titlesize": 9,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.labelsize": 9,
    "xtick.labelsize": 8.5,
    "ytick.labelsize": 8.5,
    "legend.fontsize": 8.5,
    "legend.title_fontsize": 8.5,
    "legend.frameon": False,
    "legend.handlelength": 2.4,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": SOFT,
    "xtick.color": SOFT,
    "ytick.color": SOFT,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "grid.color": FAINT,
    "grid.linewidth": 0.6,
    "lines.linewidth": 1.6,
    "lines.markersize": 5,
    "hatch.linewidth": 0.6,
    "figure.constrained_layout.use": True,
    "svg.hashsalt": "gpusim",  # ids in an SVG would otherwise be random
    "pdf.fonttype": 42,
}
_UNIT = re.compile(r"(\d) (?=(?:[KMGT]i?)?B\b|[num]?s\b|%|times\b)")
_KEEP = ("backend", "interactive", "toolbar", "webagg", "tk.", "macosx", "datapath")  # not a matter of style

for _file in font.FILES.values():
    fontManager.addfont(_file)


@dataclass(frozen=True)
class Look:
    """How one policy is drawn in every figure."""

    colour: str
    marker: str
    dashed: bool = False

    @property
    def line(self) -> str:
        return "--" if self.dashed else "-"

    @property
    def grow(self) -> float:
        """Factor by which the marker must grow to look as large as a circle."""
        return 1.6 if self.marker == "*" else 1.0


# Policies of different kinds may share a look: a figure compares policies of one kind, or says both.
_KNOWN = {
    # evict
    "lru": Look(BLUE, "o"),
    "fifo": Look(ORANGE, "s"),
    "lfu": Look(GREEN, "D"),
    "clock": Look(SKY, "^"),
    "sieve": Look(PINK, "v"),
    "s3fifo": Look(VERMILION, "P"),
    "arc": Look(OLIVE, "<"),
    "random": Look(GREY, ">"),
    "largest": Look(INDIGO, "h"),
    "cost_aware": Look(WINE, "p"),
    "belady": Look(BLACK, "*"),
    "none": Look(SOFT, "X"),
    # unified memory
    "driver": Look(BLUE, "o"),
    # prefetch
    "next_k": Look(BLUE, "o"),
    "stride": Look(ORANGE, "s"),
    "oracle": Look(BLACK, "*"),
    # place
    "first_fit": Look(SKY, "^"),
    "next_fit": Look(PINK, "v"),
    "best_fit": Look(BLUE, "o"),
    "worst_fit": Look(VERMILION, "P"),
    "buddy": Look(GREEN, "D"),
    "tlsf": Look(WINE, "p"),
    "slab": Look(OLIVE, "<"),
    "pytorch": Look(ORANGE, "s"),
}
_MARKERS = ("o", "s", "D", "v", "P", "^", "h", "p", "<", ">", "d", "8")
_SPARE = [Look(c, _MARKERS[(i + k) % len(_MARKERS)]) for k in range(1, len(_MARKERS)) for i, c in enumerate(COLOURS)]


def looks(names: Iterable[str], oracles: Iterable[str] = ()) -> dict[str, Look]:
    """A look for each name: the built-in policy's own, else one that follows from the name; no two alike.

    A name "lru + next_k" joins two policies: the colour of the first, the marker of the second.  Names in `oracles`
    are dashed.
    """
    future = set(oracles)
    given: dict[str, Look] = {}
    taken: set[tuple[str, str]] = set()
    used: set[str] = set()  # colours
    # Built-in names first, then in alphabetical order: the look does not depend on the order of the runs.
    for name in sorted(set(names), key=lambda n: (n not in _KNOWN, n)):
        look = _preferred(name)
        if look is None or (look.colour, look.marker) in taken:
            start = zlib.crc32(name.encode()) % len(_SPARE)
            spare = [s for s in (*_SPARE[start:], *_SPARE[:start]) if (s.colour, s.marker) not in taken]
            look = next((s for s in spare if s.colour not in used), (spare or _SPARE)[0])
        taken.add((look.colour, look.marker))
        used.add(look.colour)
        given[name] = Look(look.colour, look.marker, name in future)
    return given


def _preferred(name: str) -> Look | None:
    """The look that a name gets when no other has it: a built-in policy's also with parameters, "arc(p=2)"."""
    first, *others = (part.split("(")[0].strip() for part in name.split("+"))
    if first in _KNOWN and not others:
        return _KNOWN[first]
    if first in _KNOWN and len(others) == 1 and others[0] in _KNOWN:
        return Look(_KNOWN[first].colour, _KNOWN[others[0]].marker)
    return None


def styled(draw: Callable[P, R]) -> Callable[P, R]:
    """Runs `draw` under this style alone, whatever the user's own matplotlib settings are."""

    @functools.wraps(draw)
    def under_style(*args: P.args, **kwargs: P.kwargs) -> R:
        with matplotlib.rc_context(_settings()):
            return draw(*args, **kwargs)

    return under_style


def canvas(rows: int = 1, width: float = WIDTH, height: float = HEIGHT) -> Figure:
    """An empty figure; `height` in inches is for one row of panels, a further row adds 60 % of it."""
    figure = Figure(figsize=(width, height * (1 + 0.6 * (rows - 1))), dpi=DPI, facecolor=PAPER)
    FigureCanvasAgg(figure)
    engine = figure.get_layout_engine()
    if engine is not None:
        engine.set(w_pad=0.08, h_pad=0.08, wspace=0.04, hspace=0.04)  # type: ignore[call-arg]
    return figure


STRIP = 110  # characters of a line of a strip, with those that its marks are as wide as
MARK = 7  # characters that a mark and the space around it are as wide as


def headline(
    figure: Figure, question: str, answer: str = "", note: str = "", strip: Sequence[Artist] = (),
    second: Sequence[Artist] = (), body: float = 0.0,
) -> None:  # fmt: skip
    """The title asks the experiment's question, the line below it says what the figure answers, the foot is a note.

    strip, second  handles of legends below the answer, on as many lines as they need, for panels that need the whole width
    body           inches of the panels with their axes, to which the figure's height is fitted; 0 keeps the height
    Room is made for it, so that text never lies over data.
    """
    top, foot = 0.10, 0.0  # inches
    said: list[tuple[float, str, dict[str, Any]]] = []
    for text, gid, width, size, weight, colour, step in (
        (question, "question", 76, 11.5, "bold", INK, 0.205),
        (answer, "answer", 108, 9, "normal", SOFT, 0.165),
    ):
        for line in wrapped(text, width) if text else ():
            said.append((top + step * 0.78, line, {"fontsize": size, "fontweight": weight, "color": colour, "gid": gid}))
            top += step
    strips = []
    for handles in filter(None, (strip, second)):
        columns = strip_columns([str(handle.get_label()) for handle in handles])
        strips.append((top, columns, handles))
        top += 0.075 + 0.195 * math.ceil(len(handles) / columns)
    feet = wrapped(note, 122)[::-1] if note else []
    foot = 0.15 * len(feet)
    if body:
        figure.set_figheight(body + top + foot)
    height = figure.get_figheight()
    for down, line, how in said:
        figure.text(0.012, 1 - down / height, line, va="baseline", **how)
    for index, line in enumerate(feet):
        figure.text(0.012, (0.15 * index + 0.06) / height, line, fontsize=8, color=SOFT, gid="note", va="baseline")
    for down, columns, handles in strips:
        made = figure.legend(
            handles=_by_rows(handles, columns), loc="upper left", bbox_to_anchor=(0.005, 1 - down / height), ncols=columns,
            columnspacing=1.6, handlelength=1.8, labelspacing=0.35,
        )  # fmt: skip
        made.set_in_layout(False)
    engine = figure.get_layout_engine()
    if engine is not None:
        bottom = (foot + 0.02) / height
        engine.set(rect=(0, bottom, 1, 1 - (top + 0.02) / height - bottom))  # type: ignore[call-arg]


def strip_columns(labels: Sequence[str]) -> int:
    """Columns of a legend across the figure: each is as wide as its longest label."""
    for columns in range(len(labels), 1, -1):
        rows = math.ceil(len(labels) / columns)
        if math.ceil(len(labels) / rows) < columns:
            continue  # as few columns as these rows need
        widths = [max(len(label) for label in labels[c::columns]) + MARK for c in range(columns)]
        if sum(widths) <= STRIP:
            return columns
    return 1


def _by_rows(handles: Sequence[Artist], columns: int) -> list[Artist]:
    """Handles in the order in which matplotlib, which fills columns, shows them row by row."""
    rows = math.ceil(len(handles) / columns)
    full = len(handles) % columns or columns  # columns that reach the last row
    order = [r * columns + c for c in range(columns) for r in range(rows if c < full else rows - 1)]
    return [handles[i] for i in order]


def wrapped(text: str, width: int) -> list[str]:
    """Lines of at most `width` characters, broken between words but not between a number and its unit."""
    kept = _UNIT.sub("\\1\0", " ".join(text.split()))
    return [line.replace("\0", " ") for line in textwrap.wrap(kept, width, break_on_hyphens=False)] or [""]


def empty(figure: Figure, text: str) -> Axes:
    """A panel that says why there is nothing to draw."""
    panel = figure.add_subplot()
    panel.set_axis_off()
    middle: dict[str, Any] = {"ha": "center", "va": "center", "transform": panel.transAxes}
    panel.text(0.5, 0.5, text, fontsize=10, color=SOFT, gid="empty", **middle)
    return panel


# The canvas and its own print function, per format: `savefig` would draw twice and lay out once more for each of them.
_PRINT = {
    "png": ("agg", "FigureCanvasAgg", {"Software": None}),
    "svg": ("svg", "FigureCanvasSVG", {"Date": None, "Creator": None}),
    "pdf": ("pdf", "FigureCanvasPdf", {"CreationDate": None, "Creator": None, "Producer": None}),
}


@styled
def save(figure: Figure, stem: str | Path, formats: Iterable[str] = ("png", "svg", "pdf")) -> list[Path]:
    """Writes STEM.png, STEM.svg, ... and returns the paths; equal figures give equal bytes on equal versions.

    The layout is found once, so all formats look alike.  Dates and versions are left out of the files.  Raises
    ResultError when one cannot be written; it is then not there.
    """
    stem = Path(stem)
    stem.parent.mkdir(parents=True, exist_ok=True)
    engine = figure.get_layout_engine()
    if engine is not None:
        engine.execute(figure)
        figure.set_layout_engine("none")
    paths = []
    for form in formats:
        path = stem.with_name(f"{stem.name}.{form}")
        _print(figure, path, form)
        paths.append(path)
    return paths


def _print(figure: Figure, path: Path, form: str) -> None:
    """One file; the figure's own canvas and resolution are back afterwards."""
    module, name, undated = _PRINT[form]
    own, dpi = figure.canvas, figure.dpi
    canvas = getattr(importlib.import_module(f"matplotlib.backends.backend_{module}"), name)(figure)
    drawn = io.BytesIO()
    try:
        getattr(canvas, f"print_{form}")(drawn, metadata=undated)
    finally:
        figure.set_dpi(dpi)
        figure.set_canvas(own)
    write_atomic(path, lambda out: out.write(drawn.getbuffer()))


def _settings() -> dict[Any, Any]:
    plain = {k: v for k, v in matplotlib.rcParamsDefault.items() if not k.startswith(_KEEP)}
    return plain | RC
