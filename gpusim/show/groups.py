"""Which runs belong together: one panel, one line, repetitions of one another."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from gpusim.results.result import Result
from gpusim.show.view import ORACLE, line_name, place_name, value


def grouped(results: Iterable[Result], keys: Sequence[str]) -> dict[str, list[Result]]:
    """The results by panel name, panels in order of appearance."""
    panels: dict[str, list[Result]] = {}
    for result in results:
        panels.setdefault(place_name(result, keys), []).append(result)
    return panels


def by_line(results: Iterable[Result], lines: Sequence[str]) -> dict[str, list[Result]]:
    """The results by line name, in order of appearance."""
    found: dict[str, list[Result]] = {}
    for result in results:
        found.setdefault(line_name(result, lines), []).append(result)
    return found


def oracles(results: Iterable[Result], lines: Sequence[str]) -> set[str]:
    """Names of the lines whose runs read the future."""
    return {line_name(r, lines) for r in results if r.oracle}


def mean(results: Iterable[Result], metric: str) -> float | None:
    """The mean over repetitions of those that finished."""
    found = [v for v in (value(r, metric) for r in results if r.finished) if v is not None]
    return math.fsum(found) / len(found) if found else None


def starred(name: str, oracle: bool) -> str:
    return f"{name} {ORACLE}" if oracle else name
