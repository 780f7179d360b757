"""What gpusim says when it cannot go on: one clear sentence, where it is, and what to try instead.

Every field of an error lives in its `args` and the text is built in `__str__`: SimPy re-creates an exception as
`type(e)(*e.args)` when it crosses a process, and so do pickle and a pool of workers.
"""

from __future__ import annotations

import difflib
import sys
from collections.abc import Iterable
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache


def nearest(word: str, candidates: Iterable[str], count: int = 3) -> list[str]:
    """The candidates that resemble `word`, best first; case and -/_ do not matter.

    Those that begin with the word come first: 'a100' is far from 'a100-sxm4-80gb' by edit distance, yet it is meant.
    """
    plain = {_plain(c): c for c in candidates}
    wanted = _plain(word)
    begun = [p for p in sorted(plain) if len(wanted) > 1 and p.startswith(wanted)]
    close = difflib.get_close_matches(wanted, list(plain), n=count, cutoff=0.6)
    likeness = [difflib.SequenceMatcher(None, wanted, c).ratio() for c in close]
    close = [c for c, ratio in zip(close, likeness, strict=True) if ratio > likeness[0] - 0.15]
    return [plain[p] for p in (begun or close)[:count]]


_LONGEST = 80  # characters of a word that is worth suggesting: a damaged file has longer ones


def suggest(word: str, candidates: Iterable[str]) -> str:
    """The question "did you mean 'x'?", or the short list of what there is, or "" when there is nothing to say."""
    known = [c for c in dict.fromkeys(candidates) if len(c) <= _LONGEST]
    near = nearest(word, known)
    if near:
        return "did you mean " + " or ".join(f"'{n}'" for n in near) + "?"
    if 0 < len(known) <= 12:
        return "known: " + ", ".join(known)
    return ""


def shown(value: object, most: int = 40) -> str:
    """The value as text for a message, cut to `most` characters."""
    text = str(value) if not isinstance(value, int) or -(10**most) < value < 10**most else "a number of many digits"
    return text if len(text) <= most else text[: most - 3] + "..."


def _plain(word: str) -> str:
    return word.lower().replace("_", "-").replace(" ", "-")


without_notes: ContextVar[bool] = ContextVar("without_notes", default=False)  # as `gpusim -q` asks


@cache
def note(words: str) -> None:
    """Tell the user, once in a process, of something that is no error; workers leave it to their parent."""
    import multiprocessing

    if multiprocessing.parent_process() is None and not without_notes.get():
        print(f"gpusim: note: {words}", file=sys.stderr)


class GpusimError(Exception):
    """Base of all errors that a user can act on.

    message  one sentence
    where    "file:line", "file" or "" when it has no place
    hint     what to try instead, or ""
    """

    def __init__(self, message: str, where: str = "", hint: str = "") -> None:
        super().__init__(message, where, hint)

    @property
    def message(self) -> str:
        return str(self.args[0])

    @property
    def where(self) -> str:
        return str(self.args[1])

    @property
    def hint(self) -> str:
        return str(self.args[2])

    def __str__(self) -> str:
        place = f"{self.where}: " if self.where else ""
        return f"{place}{self.message}" + (f" ({self.hint})" if self.hint else "")


class UnitError(GpusimError):
    """A quantity that cannot be read, or is of another kind than the one wanted."""


class TraceError(GpusimError):
    """A trace that cannot be read, or says something impossible."""


class ProfileError(GpusimError):
    """A hardware profile that does not exist or lacks what is asked of it."""


class PolicyError(GpusimError):
    """A policy that does not exist, cannot be registered, or broke its contract while it ran."""


class ResultError(GpusimError):
    """A run folder that is missing, incomplete, or cannot be written."""


class GridError(GpusimError):
    """A grid that cannot be run: too large, or empty."""


class MeasurementError(GpusimError):
    """Measurements that cannot be taken, read or used."""


@dataclass(frozen=True)
class Problem:
    """One mistake in one file; line and col count from 1, 0 when the mistake has no place."""

    message: str
    file: str = ""
    line: int = 0
    col: int = 0
    source: str = ""  # the line as written
    hint: str = ""
    width: int = 1  # characters that the caret underlines

    @property
    def where(self) -> str:
        """file:line:col, as far as known."""
        return ":".join([self.file, *(str(n) for n in (self.line, self.col) if n)])

    def __str__(self) -> str:
        text = f"{self.where}: {self.message}" if self.where else self.message
        if self.source and self.line:
            gutter = f"{self.line:>5} | "
            text += f"\n{gutter}{self.source}"
            if self.col:
                text += "\n" + " " * (len(gutter) - 2) + "| " + " " * (self.col - 1) + "^" * max(1, self.width)
        return f"{text}\n        {self.hint}" if self.hint else text


class ConfigError(GpusimError):
    """All mistakes of one file at once, in the order in which they stand there."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        Exception.__init__(self, tuple(problems))

    @property
    def problems(self) -> tuple[Problem, ...]:
        return tuple(self.args[0])

    @property
    def message(self) -> str:
        return self.problems[0].message if self.problems else ""

    @property
    def where(self) -> str:
        return self.problems[0].file if self.problems else ""

    @property
    def hint(self) -> str:
        return self.problems[0].hint if self.problems else ""

    def __str__(self) -> str:
        return "\n".join(str(p) for p in self.problems)
