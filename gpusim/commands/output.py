"""What the verbs print: aligned tables for people, JSON for programs."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import typer

Row = Mapping[str, Any]


def emit(rows: Iterable[Row], as_json: bool = False, columns: Sequence[str] | None = None) -> None:
    """Print rows as an aligned table, or as a JSON list.

    columns  the keys that the table shows, in this order; those of the first row by default.  JSON shows all.
    """
    rows = list(rows)
    if as_json:
        emit_json([dict(row) for row in rows])
    elif rows:
        typer.echo(table(rows, columns or list(rows[0])))


def emit_json(value: Any) -> None:
    """Print a value as JSON; a number that is not finite becomes null, since JSON has none."""
    typer.echo(json.dumps(_plain(value), indent=2, ensure_ascii=False))


def table(rows: Sequence[Row], columns: Sequence[str]) -> str:
    """Rows as text: a header, a rule, one line per row; numbers to the right, words to the left; no trailing spaces."""
    cells = [[show(row.get(column)) for column in columns] for row in rows]
    right = [any(_is_number(row.get(c)) for row in rows) for c in columns]
    widths = [max(len(c), *(len(line[i]) for line in cells)) for i, c in enumerate(columns)]

    def line(values: Sequence[str]) -> str:
        padded = (v.rjust(w) if r else v.ljust(w) for v, w, r in zip(values, widths, right, strict=True))
        return "  ".join(padded).rstrip()

    return "\n".join([line(columns), "  ".join("-" * w for w in widths), *map(line, cells)])


def show(value: Any) -> str:
    """A cell: four significant digits, thousands separated, "-" for what there is none of."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        if value == 0 or not math.isfinite(value):
            return f"{value:g}"
        digits = max(0, 3 - math.floor(math.log10(abs(value))))
        return f"{value:,.{min(digits, 9)}f}"
    if isinstance(value, int):
        return f"{value:,}"
    return str(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(v) for v in value]
    if hasattr(value, "item") and not isinstance(value, str):  # a numpy scalar
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if isinstance(value, str | int | float | bool) or value is None else str(value)
