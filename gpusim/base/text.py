"""Values as text: cells, aligned tables, lists of words."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from textwrap import wrap
from typing import Any

Cells = Mapping[str, Any]
_GAP = 2  # characters between two columns
_LEAST = 12  # characters of a column of words, however narrow the text


def table(rows: Sequence[Cells], columns: Sequence[str], width: int | None = None) -> str:
    """Rows as text: a header, a rule, the rows; numbers to the right, words to the left; no trailing spaces.

    width  of the text [characters]: long words go on in further lines, numbers are never cut.  Without it a row is a line.
    """
    cells = [[show(row.get(column)) for column in columns] for row in rows]
    right = [any(_is_number(row.get(c)) for row in rows) for c in columns]
    widths = [max(len(c), *(len(line[i]) for line in cells)) for i, c in enumerate(columns)]
    if width is not None:
        least = [w if r else max(len(c), _LEAST) for c, w, r in zip(columns, widths, right, strict=True)]
        widths = _folded(widths, least, width)

    def lines(values: Sequence[str]) -> list[str]:
        pieces = [wrap(v, w) if len(v) > w else [v] for v, w in zip(values, widths, strict=True)]
        return [line(each) for each in zip_longest(*pieces, fillvalue="")]

    def line(values: Sequence[str]) -> str:
        padded = (v.rjust(w) if r else v.ljust(w) for v, w, r in zip(values, widths, right, strict=True))
        return (" " * _GAP).join(padded).rstrip()

    rule = (" " * _GAP).join("-" * w for w in widths)
    return "\n".join([line(columns), rule, *(each for row in cells for each in lines(row))])


def _folded(widths: Sequence[int], least: Sequence[int], room: int) -> list[int]:
    """Widths that together take `room` where they can: the widest give way first, none below its least."""
    room -= _GAP * (len(widths) - 1)
    for most in range(max(widths), 0, -1):
        found = [min(w, max(most, low)) for w, low in zip(widths, least, strict=True)]
        if sum(found) <= room:
            return found
    return [min(w, low) for w, low in zip(widths, least, strict=True)]


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
