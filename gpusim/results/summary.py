"""`summary.csv`: a row per run, axes first, units in the headers."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from pathlib import Path

from gpusim.base.defaults import LATER
from gpusim.base.files import write_text
from gpusim.results.metrics import METRICS, in_order
from gpusim.results.result import FOR_REFEREE, Result

SUMMARY = "summary.csv"

# What a run is, with the header of its column; every summary has these, in this order.
AXES = {
    "trace": "trace", "profile": "profile", "memory": "memory [B]", "memory_share": "memory share [1]",
    "host_memory": "host memory [B]", "place": "place", "evict": "evict", "prefetch": "prefetch",
    "defrag": "defrag", "seed": "seed",
}  # fmt: skip
# What follows from those, or only the referee needs.
_DERIVED = ("trace_hash", *FOR_REFEREE, "capacity", "host_capacity", "footprint")


def write_summary(out: Path, results: Iterable[Result]) -> Path:
    """`summary.csv`: axes, outcome, oracle, every metric and bound that a run has, the run's key.  Returns its path."""
    write_text(out / SUMMARY, summary(list(results)))
    return out / SUMMARY


def summary(results: Sequence[Result]) -> str:
    """The text of summary.csv; numbers in full precision, an empty cell where a run has no such number.

    The makespan of a run that did not finish is left out: it is shorter than that of any run that did.
    """
    columns = {**AXES, **{axis: axis for axis in axes(results) if axis not in AXES}}
    names = in_order({name for result in results for name in (*result.metrics, *result.bounds)})
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*columns.values(), "outcome", "oracle", "checked", *(METRICS[n].header for n in names), "run"])
    for result in results:
        verdict = {True: "yes", False: "no", None: "unchecked"}[result.checked]
        numbers = {**result.bounds, **result.metrics}
        if not result.finished:
            numbers.pop("makespan_ns", None)
        writer.writerow([
            *(result.spec.get(axis, LATER.get(axis)) for axis in columns),
            result.outcome, "yes" if result.oracle else "no", verdict, *(numbers.get(name) for name in names), result.key,
        ])  # fmt: skip
    return text.getvalue()


def axes(results: Sequence[Result]) -> list[str]:
    """The keys of `spec` in which these results differ, numbers and words only: those of AXES first."""
    keys = dict.fromkeys([*AXES, *(key for result in results for key in result.spec)])
    values = {key: [result.spec.get(key, LATER.get(key)) for result in results] for key in keys if key not in _DERIVED}
    return [
        key
        for key, column in values.items()
        if len(set(map(repr, column))) > 1 and all(isinstance(v, str | int | float | None) for v in column)
    ]
