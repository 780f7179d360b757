"""What changed between two results folders, number by number."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gpusim.results.folder import load_folder, load_result, run_folders
from gpusim.results.metrics import LOWER, METRICS, NEITHER
from gpusim.results.result import Result
from gpusim.results.summary import AXES, axes

# What an axis is called does not matter as long as both folders say the same: bytes follow from a share.
_FOLLOWS = {"memory": "memory_share"}


@dataclass(frozen=True)
class Change:
    """One difference of one run.

    run     the axes in which the runs of a folder differ, with their values
    metric  a name of results.metrics, "outcome", or "run" for one that only one folder has
    a, b    the values; None where there is none
    ratio   b over a; None for words and when a is 0
    better  whether b is better than a; None when neither is
    """

    run: dict[str, object]
    metric: str
    a: object
    b: object
    ratio: float | None = None
    better: bool | None = None


def changes(a: Sequence[Result], b: Sequence[Result], *, always: Sequence[str] = AXES) -> list[Change]:
    """All differences in outcome, metrics and bounds between the runs of two folders, in the order of `a`, then of `b`.

    Two runs are a pair when they agree in all that differs within either folder, and in the keys `always`: with () a folder
    at 50 % memory is compared with one at 60 %.
    """
    found: list[Change] = []
    for run, old, new in _pairs(a, b, always):
        if old is None or new is None:
            found.append(Change(run, "run", old and old.outcome, new and new.outcome))
        else:
            found += _differences(run, old, new)
    return found


def unequal(a: Path, b: Path) -> list[Change]:
    """The same to the last bit of two folders, and of runs that kept them the timelines and event logs, record by record.

    The metric of such a change is "timeline COLUMN", "log", "pages COLUMN", "faults" or "failure"; its values are the first
    that differ, or how many there are.  Raises ResultError.
    """
    old = {folder.name: folder for folder in run_folders(a)}
    new = {folder.name: folder for folder in run_folders(b)}
    first, second = load_folder(a, timeline=False), load_folder(b, timeline=False)
    found = changes(first, second)
    for run, x, y in _pairs(first, second, AXES):
        if x is not None and y is not None:
            found += _records(run, _whole(old[x.key], x), _whole(new[y.key], y))
    return found


def _whole(folder: Path, result: Result) -> Result:
    """The result with its timeline and log, which one in columns does not have."""
    return load_result(folder) if folder.is_dir() else result


def _pairs(
    a: Sequence[Result], b: Sequence[Result], always: Sequence[str]
) -> Iterator[tuple[dict[str, object], Result | None, Result | None]]:
    """What a pair of runs is called, and the pair; runs of `b` that `a` does not have come last."""
    shown = list(dict.fromkeys([*axes(a), *axes(b)]))
    keys = list(dict.fromkeys([*always, *shown]))
    there = {_identity(result, keys): result for result in b}
    for old in a:
        yield _said(old, shown or ["evict"]), old, there.pop(_identity(old, keys), None)
    for new in there.values():
        yield _said(new, shown or ["evict"]), None, new


def _records(run: dict[str, object], old: Result, new: Result) -> Iterator[Change]:
    """What two results recorded beside their numbers, where it is not the same."""
    if old.failure != new.failure:
        yield Change(run, "failure", json.dumps(old.failure), json.dumps(new.failure))
    if old.faults is not None and new.faults is not None and old.faults.plain() != new.faults.plain():
        yield Change(run, "faults", "another report", "another report")
    if (old.log is None) == (new.log is None):
        logs: list[Any] = [{} if r.log is None else {"": r.log} for r in (old, new)]
    else:
        logs = [{}, {}]  # one run kept none: nothing to compare
    tables = (("timeline", old.timeline, new.timeline), ("log", *logs), ("pages", old.pages or {}, new.pages or {}))
    for name, x, y in tables:
        if x and y:
            yield from _columns(run, name, x, y)


def _columns(run: dict[str, object], name: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Change]:
    for column in dict.fromkeys([*old, *new]):
        what = f"{name} {column}".strip()
        x, y = old.get(column), new.get(column)
        if x is None or y is None:
            yield Change(run, what, x if x is None else len(x), y if y is None else len(y))
        elif len(x) != len(y):
            yield Change(run, what, f"{len(x)} records", f"{len(y)} records")
        elif len(where := np.flatnonzero((x != y) & ((x == x) | (y == y)))):  # NaN is NaN
            yield Change(run, what, f"{x[where[0]]} at {where[0]}", f"{y[where[0]]} at {where[0]}")


def _said(result: Result, keys: Sequence[str]) -> dict[str, object]:
    """The values of these keys, without what follows from others."""
    return {key: result.spec.get(key) for key in keys if result.spec.get(_FOLLOWS.get(key, "")) is None}


def _identity(result: Result, keys: Sequence[str]) -> str:
    return json.dumps(_said(result, keys), sort_keys=True, default=str)


def _differences(run: dict[str, object], old: Result, new: Result) -> Iterator[Change]:
    if old.outcome != new.outcome:
        better = new.finished if old.finished or new.finished else None
        yield Change(run, "outcome", old.outcome, new.outcome, None, better)
    before, after = {**old.bounds, **old.metrics}, {**new.bounds, **new.metrics}
    for name, metric in METRICS.items():
        x, y = before.get(name), after.get(name)
        if x == y:
            continue
        if x is None or y is None:
            yield Change(run, name, x, y)
        else:
            better = None if metric.better == NEITHER else (y < x) == (metric.better == LOWER)
            yield Change(run, name, x, y, y / x if x else None, better)
