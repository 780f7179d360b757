"""The figure of a question about services: a row for each combination, with its times, and what it bears or makes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from gpusim.show.panels import logarithmic, row_labels
from gpusim.show.style import BLUE, FAINT, GREEN, ORANGE, canvas, headline, save, styled
from gpusim.studies.serving.questions import ServingQuestion

Rows = list[dict[str, Any]]
TTFT, TPOT, RATE, TOKENS, COST = "TTFT", "TPOT", "rate [1/s]", "output [tokens/s]", "cost of 1 M tokens"
ROW, AXIS = 0.3, 0.75  # inches of a row's line, and of the axes
LONG = 20  # characters of a word that is shown as it is
_NONE = {"beside": "alone", "lora": "no adapters"}
WHAT = {TTFT: "to first token", TPOT: "per output token"}
SECONDS = 10_000  # ms from which times are in seconds
LEAST = 1e-3  # ms: what is less is no time, such as that between tokens that come all at once


def save_figure(asked: ServingQuestion, rows: Rows, folder: Path) -> list[Path]:
    """The figure in all formats, where any combination could be served."""
    return save(draw(asked, rows), folder / "serving") if any("why not" not in row for row in rows) else []


@styled
def draw(asked: ServingQuestion, rows: Rows) -> Figure:
    """Half and 99 % of the times to the first token and between tokens, and the largest rate, or tokens a second."""
    there = [row for row in rows if "why not" not in row]
    labels = [label(asked, row) for row in there]
    figure, value = canvas(), RATE if asked.find else TOKENS
    names = [TTFT, *((TPOT,) if any(row[f"{TPOT} p99 [ms]"] > LEAST for row in there) else ()), value]
    names += [COST] if all(COST in row for row in there) else []
    axes = list(figure.subplots(1, len(names), sharey=True))
    for panel, name in zip(axes, names, strict=True):
        if name in (TTFT, TPOT):
            _times(panel, there, name)
        else:
            _values(panel, [float(row[name]) for row in there], name)
        panel.set_ylim(len(there) - 0.4, -0.6)
        panel.grid(axis="y", visible=False)
        panel.grid(axis="x", visible=True)
        panel.tick_params(axis="y", length=0)
    lines = row_labels(axes[0], labels)
    handles = axes[0].get_legend_handles_labels()[0]
    headline(figure, asked.question, _answer(asked, there, labels), _refused(rows), strip=handles,
             body=AXIS + ROW * len(there) * (1 + 0.4 * (lines - 1)))  # fmt: skip
    return figure


def label(asked: ServingQuestion, row: dict[str, Any]) -> str:
    """The values of a row's axes, of long words as much as tells them apart."""
    words = []
    for name, values in asked.axes().items():
        word = short(str(row[name]), [str(value) for value in values])
        words.append(_NONE.get(name, f"no {name}") if not word else f"{name} {word}" if _is_number(word) else word)
    return ", ".join(words) or asked.question


def short(word: str, among: Sequence[str]) -> str:
    """The word as it is; where it is long without its brackets, or only what of it not all have, if that tells it apart."""
    before = [other.split("(")[0] for other in among]
    if len(word) <= LONG:
        return word
    if "(" in word and len(set(before)) == len(before):
        return word.split("(")[0]
    parts = [[part.strip() for part in re.split(r"[(),]", other) if part.strip()] for other in among]
    own = [part for part in parts[among.index(word)] if not all(part in others for others in parts)]
    return ", ".join(own) or parts[among.index(word)][0]


def _is_number(word: str) -> bool:
    return word.replace(".", "", 1).isdigit()


def _times(panel: Axes, rows: Rows, name: str) -> None:
    """p50 to p99 of each row."""
    slow = max(float(row[f"{name} p99 [ms]"]) for row in rows) >= SECONDS
    unit, divisor = ("s", 1e3) if slow else ("ms", 1.0)
    ends = [[max(float(row[f"{name} {share} [ms]"]), LEAST) / divisor for row in rows] for share in ("p50", "p99")]
    places = list(range(len(rows)))
    panel.hlines(places, ends[0], ends[1], color=FAINT, linewidth=2, zorder=1)
    for share, x, colour in zip(("p50", "p99"), ends, (BLUE, ORANGE), strict=True):
        panel.plot(x, places, "o", color=colour, markersize=4, label=share, gid=f"{name} {share}")
    shown = [x for end in ends for x in end if x > LEAST]
    logarithmic(panel, min(shown) / 1.4, max(shown) * 1.4, lambda x: f"{x:,.0f}" if x >= 1 else f"{x:g}", 2)
    panel.set_xlabel(f"{WHAT[name]} [{unit}]")


def _values(panel: Axes, found: list[float], name: str) -> None:
    panel.barh(range(len(found)), found, height=0.5, color=GREEN, gid=name)
    for place, x in enumerate(found):
        panel.annotate(f"{x:,.3g}" if x < 1000 else f"{x:,.0f}", (x, place), (3, 0), textcoords="offset points", va="center")
    panel.set_xlim(0, max(found) * 1.35 or 1.0)
    panel.set_xlabel({RATE: "largest rate [1/s]", TOKENS: "output [tokens/s]", COST: "cost of 1 M tokens"}[name])


def _answer(asked: ServingQuestion, rows: Rows, labels: list[str]) -> str:
    """Which of them is best, in the word of the question's search."""
    if asked.find:
        best = max(range(len(rows)), key=lambda i: rows[i][RATE])
        said = f"Most requests: {labels[best]}, {rows[best][RATE]:.3g} a second."
        if all(COST in row for row in rows):
            cheap = min(range(len(rows)), key=lambda i: rows[i][COST])
            said += f" Cheapest: {labels[cheap]}, {rows[cheap][COST]:.3g} for a million tokens."
        return said
    best = min(range(len(rows)), key=lambda i: rows[i][f"{TTFT} p99 [ms]"])
    return f"Earliest first tokens: {labels[best]}, 99 % within {rows[best][f'{TTFT} p99 [ms]']:,.0f} ms."


def _refused(rows: Rows) -> str:
    """Combinations that could not be served, and why."""
    why = dict.fromkeys(str(row["why not"]) for row in rows if "why not" in row)
    count = sum("why not" in row for row in rows)
    said = "; ".join([*list(why)[:2], *(("and so on",) if len(why) > 2 else ())])
    return f"{count} of {len(rows)} combinations were not served: {said}." if why else ""
