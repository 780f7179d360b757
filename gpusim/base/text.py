"""Values as text: cells, aligned tables, lists of words."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

Cells = Mapping[str, Any]


def table(rows: Sequence[Cells], columns: Sequence[str]) -> str:
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


def join(words: Sequence[str]) -> str:
    """ "a", "a and b", "a, b and c"."""
    return " and ".join([", ".join(words[:-1]), words[-1]]) if len(words) > 1 else "".join(words)
