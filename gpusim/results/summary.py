"""Results as rows: `summary.csv`, JSON and DataFrames.

A quantity has one name wherever it stands, with its unit at the end: `_ns`, `_bytes`, `_per_s`; a share, a ratio or a count has
none.  `results.metrics` names what was measured, `column` what the run was.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from gpusim.base.defaults import LATER
from gpusim.base.files import write_text
from gpusim.results.metrics import in_order
from gpusim.results.result import FOR_REFEREE, Result

SUMMARY = "summary.csv"

# What a run is; every summary has these, in this order.
AXES = ("trace", "profile", "memory", "memory_share", "host_memory", "place", "evict", "prefetch", "defrag", "seed")
# What an experiment writes with its unit is a number of bytes in a result.
_BYTES = ("memory", "host_memory", "capacity", "host_capacity", "footprint")
# What follows from the axes, or only the referee needs.
_DERIVED = ("trace_hash", *FOR_REFEREE, "capacity", "host_capacity", "footprint")
_CELLS = {True: "yes", False: "no"}


def column(key: str) -> str:
    """The name in every table of what stands under this key in the spec of a result."""
    return f"{key}_bytes" if key in _BYTES else key


def rows(results: Sequence[Result]) -> list[dict[str, Any]]:
    """A row per run: axes, outcome, oracle, checked (None: the referee has not looked), every metric and bound that one of the
    runs has, and the run's key; None where a run has no such number.

    The makespan of a run that did not finish is left out: it is shorter than that of any run that did.
    """
    keys = dict.fromkeys([*AXES, *axes(results)])
    names = in_order({name for result in results for name in (*result.metrics, *result.bounds)})
    found = []
    for result in results:
        numbers = {**result.bounds, **result.metrics}
        if not result.finished:
            numbers.pop("makespan_ns", None)
        found.append({
            **{column(key): result.spec.get(key, LATER.get(key)) for key in keys},
            "outcome": result.outcome, "oracle": result.oracle, "checked": result.checked,
            **{name: numbers.get(name) for name in names}, "run": result.key,
        })  # fmt: skip
    return found


def write_summary(out: Path, results: Iterable[Result]) -> Path:
    """`summary.csv` in the folder OUT, one row per run as `rows` has them.  Returns its path."""
    write_text(out / SUMMARY, summary(list(results)))
    return out / SUMMARY


def summary(results: Sequence[Result]) -> str:
    """The text of summary.csv; numbers in full precision, an empty cell where a run has no such number."""
    table = rows(results)
    text = io.StringIO()
    writer = csv.DictWriter(text, list(table[0]) if table else [], lineterminator="\n")
    writer.writeheader()
    for row in table:
        oracle, checked = _CELLS[row["oracle"]], _CELLS.get(row["checked"], "unchecked")
        writer.writerow({**row, "oracle": oracle, "checked": checked})
    return text.getvalue()


def axes(results: Sequence[Result]) -> list[str]:
    """The keys of `spec` in which these results differ, numbers and words only: those of AXES first."""
    keys = dict.fromkeys([*AXES, *(key for result in results for key in result.spec)])
    values = {key: [result.spec.get(key, LATER.get(key)) for result in results] for key in keys if key not in _DERIVED}
    return [
        key
        for key, found in values.items()
        if len(set(map(repr, found))) > 1 and all(isinstance(v, str | int | float | None) for v in found)
    ]
