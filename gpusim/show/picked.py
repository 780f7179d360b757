"""Very many runs on one page, as tables: the best, memory against time, and the axes by how much they matter."""

from __future__ import annotations

from collections.abc import Sequence

from gpusim.results.metrics import metric as declared
from gpusim.results.result import Result
from gpusim.show.table import markdown, render
from gpusim.show.values.picked import LISTED, MOST, MOST_PROGRAMS, Effect, Picked, RunsPoint, picked
from gpusim.show.view import REFERENCE, human, text

ALL = "summary.csv has a row for each"


def overview(results: Sequence[Result], metric: str = "", width: int = 120, colour: bool = False) -> str:
    """The table of the runs, or of very many runs what to look at; `metric` is what they are compared by."""
    if len(results) <= LISTED:
        return render(results, metric, width, colour=colour)
    found = picked(results, metric)
    parts = [f"{counted(found)}; {ALL}."]
    for title, rows in tables(found):
        widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
        lines = ["  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in rows]
        parts.append("\n".join([title, *lines]))
    return "\n\n".join(parts)


def overview_markdown(results: Sequence[Result]) -> str:
    """The same in Markdown."""
    if len(results) <= LISTED:
        return markdown(results)
    found = picked(results)
    parts = [f"{counted(found)}; {ALL}."]
    for title, (head, *rows) in tables(found):
        lines = [_line(head), "|" + " --- |" * len(head), *map(_line, rows)]
        parts.append(f"### {title}\n\n" + "\n".join(lines))
    return "\n\n".join(parts)


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def counted(found: Picked) -> str:
    """How many runs there are, and how those ended that did not finish."""
    ended = "".join(f", {count:,} {how}" for how, count in found.endings.items())
    return f"{found.runs:,} runs{ended}"


def tables(found: Picked) -> list[tuple[str, list[list[str]]]]:
    """Title and rows of each table, the header first."""
    tables = []
    for program in found.programs[:MOST_PROGRAMS]:
        of = f" of {program.name}" if program.name else ""
        if program.best:
            tables.append((f"Best{of}", _points(program.best, found)))
        if len(program.front) > 1:
            shown = _spread(program.front)
            few = "" if len(shown) == len(program.front) else f", {len(shown)} of {len(program.front)}"
            tables.append((f"Least {declared(found.metric).label} for the memory held{of}{few}", _points(shown, found)))
    if found.effects:
        tables.append((_why(found), _effects(found)))
    return tables


def _spread(points: Sequence[RunsPoint]) -> list[RunsPoint]:
    """At most MOST of them, from the first to the last."""
    if len(points) <= MOST:
        return list(points)
    return [points[round(i * (len(points) - 1) / (MOST - 1))] for i in range(MOST)]


def _points(points: Sequence[RunsPoint], found: Picked) -> list[list[str]]:
    held, keys = any(p.memory is not None for p in points), [key for key in found.keys if key not in REFERENCE]
    rows = [[*(_name(key) for key in keys), declared(found.metric).label, *(["memory held"] if held else []), "runs"]]
    for p in points:
        spec = p.runs[0].spec
        memory = [human("reserved_peak_bytes", p.memory)] if held else []
        rows.append(
            [*(text(key, spec.get(key)) for key in keys), human(found.metric, p.value), *memory, f"{len(p.runs):,}"]
        )
    return rows


def _why(found: Picked) -> str:
    left = len(found.programs) - MOST_PROGRAMS
    more = f" ({left} more programs on machines are not named above)" if left > 0 else ""
    return f"Variance of {declared(found.metric).label} by axis, alone and together with others{more}"


def _effects(found: Picked) -> list[list[str]]:
    rows = [["axis", "alone", "together", "levels", "best on average", "worst on average", "unfinished most at"]]
    higher = declared(found.metric).better == "higher"
    for effect in found.effects:
        known = [level for level in effect.levels if level.mean is not None]
        order = sorted(known, key=lambda level: level.mean or 0.0, reverse=higher)
        ends = [f"{level.name} ({human(found.metric, level.mean)})" for level in (order[0], order[-1])] if order else ["-", "-"]
        rows.append([
            _name(effect.axis), f"{100 * effect.alone:.1f} %", f"{100 * effect.together:.1f} %", f"{len(effect.levels):,}",
            *ends, _unfinished(effect),
        ])  # fmt: skip
    return rows


def _unfinished(effect: Effect) -> str:
    most = max(effect.levels, key=lambda level: (level.runs - level.finished) / level.runs)
    left = most.runs - most.finished
    return f"{most.name} ({left:,} of {most.runs:,})" if left else "-"


def _name(key: str) -> str:
    return {"memory_share": "memory", "trace": "program", "profile": "machine"}.get(key, key.replace("_", " "))
