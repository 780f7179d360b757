"""CSV with named columns, as the importers read it: columns in any order, comments, file:line in every message."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Mapping

from gpusim.base.errors import TraceError, shown, suggest

_LONGEST_LINE = 1 << 20


class CsvTable:
    """Rows of a CSV file as dicts; `line` is the line of the row being read.  Column names ignore case and blanks."""

    def __init__(
        self, data: bytes, path: str, *, required: Iterable[str], optional: Iterable[str] = (), strict: bool = False
    ) -> None:
        """strict: refuse columns that are neither required nor optional."""
        self.path, self.line = path, 0
        self._text = data.decode("utf-8-sig", "replace").splitlines()
        self._rows = self._numbered()
        self.columns = [c.strip().lower() for c in next(self._rows, [])]
        required, optional = tuple(required), tuple(optional)
        strange = [c for c in self.columns if c not in required + optional]
        missing = [c for c in required if c not in self.columns]
        for column in strange if strict or missing else ():
            raise self.error(f"there is no column '{shown(column)}'", suggest(column, missing or optional))
        if missing:
            raise self.error(f"the column '{missing[0]}' is missing", "needed: " + ", ".join(required))
        double = [c for c in self.columns if self.columns.count(c) > 1]
        if double:
            raise self.error(f"the column '{shown(double[0])}' is there twice")

    def _numbered(self) -> Iterator[list[str]]:
        for number, text in enumerate(self._text, 1):
            self.line = number
            if not text.strip() or text.startswith("#"):
                continue
            if len(text) > _LONGEST_LINE:
                raise self.error("the line is longer than a million characters", "is this a CSV file?")
            yield next(csv.reader(io.StringIO(text))) if '"' in text else text.split(",")

    def __iter__(self) -> Iterator[dict[str, str]]:
        columns = self.columns
        for values in self._rows:
            if len(values) != len(columns):
                raise self.error(
                    f"the line has {len(values)} values, but there are {len(columns)} columns", "is the file cut short?"
                )
            yield dict(zip(columns, (v.strip() for v in values), strict=True))

    def whole(self, row: Mapping[str, str], column: str) -> int:
        return self.number(row[column], column)

    def number(self, text: str, column: str) -> int:
        """A whole number of 64 bits, decimal."""
        try:
            value = int(text)
        except ValueError:
            raise self.error(f"'{text[:40]}' in column '{column}' is not a whole number") from None
        if not -(2**63) <= value < 2**63:
            raise self.error(f"{text[:40]} in column '{column}' overflows 64 bits")
        return value

    def known(self, word: str, words: Mapping[str, str]) -> str:
        """What the word stands for; refused with a suggestion when it is not one of the words."""
        if word not in words:
            raise self.error(f"unknown entry '{word[:40]}'", suggest(word, words))
        return words[word]

    @property
    def where(self) -> str:
        return f"{self.path}:{self.line}"

    def error(self, message: str, hint: str = "") -> TraceError:
        return TraceError(message, self.where, hint)
