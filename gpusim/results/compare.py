"""What changed between two results folders, number by number."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gpusim.results.metrics import LOWER, METRICS, NEITHER
from gpusim.results.result import Result
from gpusim.results.summary import AXES, axes

# What an axis is called does not matter as long as both folders say the same: bytes follow from a share.
_FOLLOWS = {"memory": "memory_share"}

# Metrics of unified memory that had the names of others until they had their own: old -> new, values are the same.
_RENAMED = {
    "allocated_peak_bytes": "resident_peak_bytes", "reserved_peak_bytes": "chunks_peak_bytes",
    "host_peak_bytes": "host_resident_peak_bytes", "stall_sync_ns": "stall_host_ns",
}  # fmt: skip


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


def changes(a: Sequence[Result], b: Sequence[Result]) -> list[Change]:
    """All differences in outcome, metrics and bounds between runs of the same name, in the order of `a`, then of `b`.

    Runs are the same when trace, profile, memory, policies, seed and whatever else the experiment varies are.
    """
    keys = list(dict.fromkeys([*AXES, *axes(a), *axes(b)]))
    shown = list(dict.fromkeys([*axes(a), *axes(b)])) or ["evict"]
    there = {_identity(result, keys): result for result in b}
    found: list[Change] = []
    for old in a:
        run = {key: old.spec.get(key) for key in shown}
        new = there.pop(_identity(old, keys), None)
        if new is None:
            found.append(Change(run, "run", old.outcome, None))
        else:
            found += _differences(run, old, new)
    found += [Change({key: r.spec.get(key) for key in shown}, "run", None, r.outcome) for r in there.values()]
    return found


def _identity(result: Result, keys: Sequence[str]) -> str:
    spec = result.spec
    said = {key: spec.get(key) for key in keys if spec.get(_FOLLOWS.get(key, "")) is None}
    return json.dumps(said, sort_keys=True, default=str)


def _differences(run: dict[str, object], old: Result, new: Result) -> Iterator[Change]:
    if old.outcome != new.outcome:
        better = new.finished if old.finished or new.finished else None
        yield Change(run, "outcome", old.outcome, new.outcome, None, better)
    before, after = _numbers(old), _numbers(new)
    for name, metric in METRICS.items():
        x, y = before.get(name), after.get(name)
        if x == y:
            continue
        if x is None or y is None:
            yield Change(run, name, x, y)
        else:
            better = None if metric.better == NEITHER else (y < x) == (metric.better == LOWER)
            yield Change(run, name, x, y, y / x if x else None, better)


def _numbers(result: Result) -> dict[str, int | float]:
    """Bounds and metrics under the names of today."""
    renamed = _RENAMED if "unified" in result.spec and "chunks_peak_bytes" not in result.metrics else {}
    return {renamed.get(name, name): value for name, value in {**result.bounds, **result.metrics}.items()}
