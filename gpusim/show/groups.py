"""Which runs belong together: one panel, one line, repetitions of one another."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from gpusim.results.metrics import metric as declared
from gpusim.results.result import Result
from gpusim.show.view import ORACLE, layout, line_name, main_metric, place_name, value


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


def ranked(results: Sequence[Result], metric: str = "") -> list[str]:
    """The names of the lines, best first, in the one order that all figures of these results have.

    First by how many places (machine, program, memory size) a line fails in, then by its mean distance from the best there.
    """
    metric = metric or main_metric(results)
    plan = layout(results)
    sign = -1.0 if declared(metric).better == "higher" else 1.0
    failed: dict[str, int] = {}
    apart: dict[str, list[float]] = {}
    for runs in grouped(results, [*plan.panels, *([plan.across] if plan.across else [])]).values():
        means = {name: mean(there, metric) for name, there in by_line(runs, plan.lines).items()}
        best = min((sign * m for m in means.values() if m is not None), default=0.0)
        for name, m in means.items():
            failed[name] = failed.get(name, 0) + (m is None)
            apart.setdefault(name, []).append(0.0 if m is None else (sign * m - best) / (abs(best) or 1.0))
    return sorted(failed, key=lambda name: (failed[name], math.fsum(apart[name]) / len(apart[name]), name))


def in_order(shown: Iterable[Result], results: Sequence[Result]) -> list[Result]:
    """Runs for a figure that shows them one by one: by place as they come, then in the order of `ranked(results)`."""
    plan, ranks, runs = layout(results), ranked(results), list(shown)
    where = [*plan.panels, *([plan.across] if plan.across else [])]
    places = list(dict.fromkeys(place_name(r, where) for r in runs))
    return sorted(runs, key=lambda r: (places.index(place_name(r, where)), ranks.index(line_name(r, plan.lines))))


def starred(name: str, oracle: bool) -> str:
    return f"{name} {ORACLE}" if oracle else name
