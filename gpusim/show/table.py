"""Results as a table for people: the columns that vary, numbers never cut, failures in words; and the same as JSON.

Within each place (one machine, program and memory size) the best run is bold and the others stand as a ratio to it.
"""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from gpusim.results.metrics import METRICS, same
from gpusim.results.metrics import metric as declared
from gpusim.results.references import RATIOS
from gpusim.results.result import Result
from gpusim.results.summary import column as named
from gpusim.show.interval import interval
from gpusim.show.standing import Standing, standings
from gpusim.show.view import (
    ALL_ENDED,
    ORACLE,
    POLICIES,
    contenders,
    ending,
    layout,
    line_name,
    main_metric,
    number,
    place_name,
    ratio,
    said,
    scale,
    text,
    value,
    varying,
)

# What a table shows after the metric that is compared, while there is room: what it is measured against first.
ALSO = (
    "sharing_slowdown", "others_slowdown", "neighbour_cost", "step_p99_ns", "fairness", "work_per_gpu", "unusable_bytes",
    "slowdown", "over_oracle", "over_best_plan", "h2d_bytes", "bound_swap_in_bytes", "batch_ns", "makespan_ns", "stall_ns",
    "d2h_bytes", "reserved_peak_bytes", "avoidable_share", "bound_plan_bytes", "compute_idle_share", "frag_external",
    "host_peak_bytes", "chunks_peak_bytes", "host_resident_peak_bytes", "nvme_in_bytes", "nvme_out_bytes",
)  # fmt: skip
HELD = ("reserved_peak_bytes", "avoidable_share")  # what comes first where nothing but allocators compete
TURNS = ("makespan_ns", "programs_swapped_bytes")  # what comes first where programs take turns with their memory
WHILE_ALL_RUN = ("sharing_slowdown", "others_slowdown", "neighbour_cost", "fairness", "work_per_gpu")  # says little of turns
INTERVAL = "p10 to p90"
_GAP = 2


@dataclass(frozen=True)
class Column:
    """One column: header with unit, cells, and whether it is of numbers (right-aligned, never wrapped).

    name      the key of the spec, or the metric; "" for one that follows from others
    values    what the cells show, in base units; None where there is none
    divisor, decimals, behind  how a number becomes its cell; no divisor where cells follow from more than the value
    """

    header: str
    cells: tuple[str, ...]
    numeric: bool
    name: str = ""
    values: tuple[Any, ...] = ()
    divisor: float | None = None
    decimals: int = 0
    behind: str = ""

    @property
    def width(self) -> int:
        return max(len(self.header), *(len(c) for c in self.cells), 1)

    @property
    def least(self) -> int:
        """The width below which it cannot shrink: words may be wrapped, numbers may not."""
        return self.width if self.numeric else min(self.width, 12)


@dataclass(frozen=True)
class Listing:
    """What every form of the table shows, row by row.

    keys    how many of the columns say which run it is; the next is the compared metric
    wins    best of its place or in a tie with it
    ratios  to the best of the place
    """

    results: tuple[Result, ...]
    columns: tuple[Column, ...]
    keys: int
    places: tuple[str, ...]
    wins: tuple[bool, ...]
    ratios: tuple[float | None, ...]


def listing(results: Sequence[Result], metric: str = "") -> Listing:
    """The rows in the order of the table, with all its columns."""
    metric = metric or main_metric(results)
    ordered = _sorted(results, metric)
    verdicts = _judge(ordered, metric)
    columns = tuple(_columns(ordered, metric, verdicts))
    keys = max(len(varying(ordered)), 1)
    return Listing(
        tuple(ordered), columns, keys, tuple(verdicts.places), tuple(verdicts.wins), tuple(verdicts.ratios)
    )


def rows(results: Sequence[Result], metric: str = "") -> list[dict[str, Any]]:
    """The table as JSON values: what varies, how the run ended, every metric and bound in base units.

    `ratio_to_best` is the compared metric over the best of the place, oracles apart; None when the run did not finish.
    """
    metric = metric or main_metric(results)
    verdicts, differ, lines = _judge(results, metric), varying(results), layout(results).lines
    found = []
    for i, r in enumerate(results):
        found.append(
            {
                **{named(key): r.spec.get(key) for key in ("trace", "profile", "memory", *POLICIES, "seed") if key in r.spec},
                **{named(key): r.spec.get(key) for key in differ},
                "oracle": r.oracle,
                "outcome": r.outcome,
                "compared": metric,
                "ratio_to_best": verdicts.ratios[i],
                "tied_for_best": verdicts.wins[i],
                **_sureness(r, metric, verdicts.standings[verdicts.places[i]], lines),
                **{name: _plain(r.metrics.get(name, r.bounds.get(name))) for name in METRICS
                   if name in r.metrics or name in r.bounds},
                "checked": r.checked,
            }
        )  # fmt: skip
    return found


def _sureness(result: Result, metric: str, place: Standing, lines: Sequence[str]) -> dict[str, Any]:
    """What the sampled machines say of a run; nothing where there are none."""
    if result.sampled is None or metric not in result.sampled.values:
        return {}
    own = line_name(result, lines)
    return {
        "p10_p90": interval([result], metric),
        "samples": [_plain(v) for v in result.sampled.values[metric]],
        "best_with": [{"number": p.path, "profile": p.profile, "at": p.at, "instead_of": p.instead}
                      for p, names in place.flips.items() if own in names],
    }  # fmt: skip


def table(results: Sequence[Result], metric: str = "", width: int = 80, title: str = "", bold: bool = True) -> Table:
    """A rich table of at most `width` columns of text; what all runs share stands below it."""
    listed = listing(results, metric)
    columns = _fitting(listed.columns, listed.keys, width)
    made = Table(
        title=escape(title) or None, title_justify="left", title_style="bold", box=None, pad_edge=False,
        padding=(0, _GAP, 0, 0), caption=escape(caption(listed.results, bold)) or None, caption_justify="left",
        header_style="bold", width=None,
    )  # fmt: skip
    for column in columns:
        made.add_column(
            escape(column.header), justify="right" if column.numeric else "left", no_wrap=column.numeric,
            overflow="fold", min_width=column.least if column.numeric else None,
        )  # fmt: skip
    several = len(listed.results) > len(set(listed.places))  # a place has several rows: set places apart
    for i, (place, wins) in enumerate(zip(listed.places, listed.wins, strict=True)):
        if i and several and listed.places[i - 1] != place:
            made.add_row()
        made.add_row(*(escape(c.cells[i]) for c in columns), style="bold" if wins and bold else "")
    return made


def render(results: Sequence[Result], metric: str = "", width: int = 80, title: str = "", colour: bool = False) -> str:
    """The table as text, without escape sequences unless `colour`."""
    console = Console(file=io.StringIO(), width=width, force_terminal=colour, no_color=not colour, highlight=False)
    console.print(table(results, metric, width, title, bold=colour))
    assert isinstance(console.file, io.StringIO)
    return "\n".join(line.rstrip() for line in console.file.getvalue().splitlines())


def markdown(results: Sequence[Result], metric: str = "", width: int = 160) -> str:
    """The same columns and order as a Markdown table."""
    listed = listing(results, metric)
    columns = _fitting(listed.columns, listed.keys, width)
    lines = ["| " + " | ".join(c.header for c in columns) + " |"]
    lines.append("|" + "|".join(" ---: " if c.numeric else " --- " for c in columns) + "|")
    for i, wins in enumerate(listed.wins):
        cells = [c.cells[i].replace("|", "\\|") for c in columns]
        if wins:  # the name and what is compared
            cells[listed.keys - 1 : listed.keys + 1] = [f"**{c}**" for c in cells[listed.keys - 1 : listed.keys + 1]]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _plain(found: Any) -> int | float | None:
    if found is None or not math.isfinite(found):
        return None
    return found.item() if hasattr(found, "item") else found  # type: ignore[no-any-return]


@dataclass(frozen=True)
class _Verdicts:
    """How each run stands in its place, in the order of the results."""

    places: list[str]
    ratios: list[float | None]  # to the best of the place
    wins: list[bool]  # best of its place or in a tie with it; an oracle only where all are oracles
    standings: dict[str, Standing]  # by place


def _judge(results: Sequence[Result], metric: str) -> _Verdicts:
    plan = layout(results)
    places = [place_name(r, [*plan.panels, *([plan.across] if plan.across else [])]) for r in results]
    values = [value(r, metric) if r.finished else None for r in results]
    competing = {id(r) for r in contenders(results)}
    pick = max if declared(metric).better == "higher" else min
    best: dict[str, float] = {}
    for r, place, own in zip(results, places, values, strict=True):
        if own is not None and id(r) in competing:
            best[place] = pick(own, best.get(place, own))
    ratios = [ratio(own, best.get(place)) for own, place in zip(values, places, strict=True)]
    judged = {standing.where: standing for standing in standings(results, metric)}
    wins = [
        own is not None and id(r) in competing
        and (same(own, best[place]) or line_name(r, plan.lines) in judged[place].turns)
        for r, own, place in zip(results, values, places, strict=True)
    ]  # fmt: skip
    return _Verdicts(places, ratios, wins, judged)


def _sorted(results: Sequence[Result], metric: str) -> list[Result]:
    """Places in order of appearance, the number along the axis falling, then best first and failures last."""
    plan = layout(results)
    panels = list(dict.fromkeys(place_name(r, plan.panels) for r in results))
    sign = -1.0 if declared(metric).better == "higher" else 1.0

    def key(r: Result) -> tuple[int, float, bool, float]:
        own = value(r, metric) if r.finished else None
        along = -(number(r.spec.get(plan.across)) or 0.0) if plan.across else 0.0
        return panels.index(place_name(r, plan.panels)), along, own is None, sign * (own or 0.0)

    return sorted(results, key=key)


def _columns(results: Sequence[Result], metric: str, verdicts: _Verdicts) -> list[Column]:
    """All columns worth showing: what varies, what is compared and its ratio to the best, then ALSO."""
    plan = layout(results)
    keys = [*plan.panels, *([plan.across] if plan.across else []), *plan.lines]
    columns = [_key_column(results, key) for key in keys or ["evict"]]
    compared = metric_column(results, metric)
    cells = tuple(ending(r) or c for c, r in zip(compared.cells, results, strict=True))
    columns.append(replace(compared, cells=cells))
    if any(interval([r], metric) for r in results):
        columns.append(_interval_column(results, metric))
    ratios = verdicts.ratios
    if len(results) > 1 and any(x is not None and abs(x - 1) > 0.005 for x in ratios):
        columns.append(_times_column("vs best", ratios))
    of_place = HELD if plan.lines == ("place",) else ()
    also = (*TURNS, *(name for name in ALSO if name not in WHILE_ALL_RUN)) if metric == ALL_ENDED else ALSO
    for name in dict.fromkeys((*of_place, *also)):
        if name in RATIOS:
            column = _times_column(declared(name).label, [value(r, name) for r in results], name)
        else:
            column = metric_column(results, name)
        if name != metric and any(c not in ("-", "0") for c in column.cells):
            columns.append(column)
    return columns


def _key_column(results: Sequence[Result], key: str) -> Column:
    cells = [text(key, said(r, key)) for r in results]
    last = (layout(results).lines or ("evict",))[-1]
    if key == last:
        cells = [f"{c} {ORACLE}" if r.oracle else c for c, r in zip(cells, results, strict=True)]
    header = {"memory_share": "memory", "trace": "program", "profile": "machine"}.get(key, key.replace("_", " "))
    numeric = all(number(r.spec.get(key)) is not None for r in results)
    found = [number(r.spec.get(key)) if numeric else cell for cell, r in zip(cells, results, strict=True)]
    return Column(header, tuple(cells), numeric, key, tuple(found))


def _interval_column(results: Sequence[Result], name: str) -> Column:
    """p10 to p90 over the sampled machines, in the unit of the metric's own column."""
    divisor, decimals, _ = _scale(results, name)
    bars = [interval([r], name) for r in results]
    cells = ("-" if b is None else f"{b[0] / divisor:,.{decimals}f} to {b[1] / divisor:,.{decimals}f}" for b in bars)
    return Column(INTERVAL, tuple(cells), True, values=tuple(b and b[0] for b in bars))


def _times_column(header: str, ratios: Sequence[float | None], name: str = "") -> Column:
    """How many times something else, beside what is compared."""
    cells = tuple("-" if x is None else f"{x:.2f}×" for x in ratios)
    return Column(header, cells, True, name, tuple(ratios), 1.0, 2, "×")


def metric_column(results: Sequence[Result], name: str) -> Column:
    """One unit and one number of decimals for the whole column."""
    divisor, decimals, header = _scale(results, name)
    found = tuple(value(r, name) for r in results)
    cells = tuple("-" if v is None else "0" if v == 0 else f"{v / divisor:,.{decimals}f}" for v in found)
    return Column(header, cells, True, name, found, divisor, decimals)


def _scale(results: Sequence[Result], name: str) -> tuple[float, int, str]:
    """Divisor, decimals and header of a metric's column."""
    found = [value(r, name) for r in results]
    known = [abs(v) for v in found if v]
    unit = declared(name).unit
    label = declared(name).label
    divisor, word = 1.0, ""
    if unit in ("ns", "B"):
        divisor, word = scale(unit, max(known, default=0.0))
    elif name in RATIOS:
        word = "×"
    elif unit == "1":
        divisor, word = 0.01, "%"
    elif unit:
        word = unit
    least = min(known, default=0.0) / divisor
    decimals = 0 if not unit or not least else min(3, max(0, 2 - math.floor(math.log10(least))))
    if name in RATIOS:
        decimals = 2
    if unit == "1" and word == "%":
        decimals = 1
    short = {"h2d": "in", "d2h": "out", "reserved peak": "reserved", "host peak": "on host", "chunks peak": "in chunks",
             "avoidable share": "avoidable", "bound swap in": "least in"}.get(label, label)
    return divisor, decimals, f"{short} [{word}]" if word else short


def _fitting(columns: Sequence[Column], keys: int, width: int) -> list[Column]:
    """As many columns as fit: those that vary and the compared one always, the rest in order while there is room."""
    must = keys + 1 + any(column.header == INTERVAL for column in columns)
    taken = list(columns[:must])
    for column in columns[must:]:
        if sum(c.width + _GAP for c in [*taken, column]) - _GAP <= width:
            taken.append(column)
    return taken


def caption(results: Sequence[Result], bold: bool) -> str:
    """What all runs share, and what the marks mean."""
    shared: list[str] = []
    keys: list[str] = []
    vary = {*varying(results), "memory_share" if "memory" in varying(results) else ""}
    for key in ("trace", "profile", "memory_share", "memory", "tiers", *POLICIES):
        given = [r.spec.get(key) for r in results]
        if key in vary or any(g is None for g in given) or (key == "memory" and len(set(map(str, given))) > 1):
            continue
        if key == "memory" and "memory_share" in keys:
            shared[-1] += f" ({text(key, given[0])})"
            continue
        keys.append(key)
        words = text(key, given[0])
        shared.append(words if key in ("trace", "profile") else f"{key.replace('_share', '')} {words}")
    marks = [f"{ORACLE} reads the future"] if any(r.oracle for r in results) else []
    if bold and len(results) > 1:
        turns = ", or in turns with it on the sampled machines" if any(r.sampled for r in results) else ""
        marks.append(f"bold: best, or within 1 % of it{turns}")
    return "\n".join(line for line in (" · ".join(shared), "; ".join(marks)) if line)
