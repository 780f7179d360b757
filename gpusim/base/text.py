"""Values as text: cells, aligned tables, lists of words."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from textwrap import wrap
from typing import Any

Cells = Mapping[str, Any]
_GAP = 2  # characters between two columns
_LEAST = 24  # characters that a column may always take: names and numbers with their units are shorter, sentences are not


def table(rows: Sequence[Cells], columns: Sequence[str], width: int | None = None) -> str:
    """Rows as text: a header, a rule, the rows; numbers to the right, words to the left; no trailing spaces.

    width  of the text [characters]: sentences go on in further lines, a name or number is not cut.  Without it a row is a line.
    """
    cells = [[show(row.get(column)) for column in columns] for row in rows]
    right = [any(_is_number(row.get(c)) for row in rows) for c in columns]
    widths = [max(len(c), *(len(line[i]) for line in cells)) for i, c in enumerate(columns)]
    if width is not None:
        widths = _folded(widths, width)

    def lines(values: Sequence[str]) -> list[str]:
        pieces = [wrap(v, w, break_on_hyphens=False) if len(v) > w else [v] for v, w in zip(values, widths, strict=True)]
        return [line(each) for each in zip_longest(*pieces, fillvalue="")]

    def line(values: Sequence[str]) -> str:
        padded = (v.rjust(w) if r else v.ljust(w) for v, w, r in zip(values, widths, right, strict=True))
        return (" " * _GAP).join(padded).rstrip()

    rule = (" " * _GAP).join("-" * w for w in widths)
    return "\n".join([line(columns), rule, *(each for row in cells for each in lines(row))])


def _folded(widths: Sequence[int], room: int) -> list[int]:
    """Widths that together take `room` where they can: the widest columns give way first, none below a short sentence."""
    room -= _GAP * (len(widths) - 1)
    for most in range(max(widths), _LEAST, -1):
        found = [min(w, most) for w in widths]
        if sum(found) <= room:
            return found
    return [min(w, _LEAST) for w in widths]


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
