"""A run in time as columns: its activities for the timeline, its heap for the address map."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.colors import to_hex

from gpusim.base.errors import GpusimError
from gpusim.results.activities import KINDS, NONE, Activities
from gpusim.results.activities import activities as activities_of
from gpusim.results.metrics import METRICS
from gpusim.results.monitoring.family import COUNTER
from gpusim.results.result import Result
from gpusim.show.figure.address_map import colours
from gpusim.show.page.pack import packed
from gpusim.show.values.heap import CATEGORIES, end, heap, held
from gpusim.show.values.metrics_over_time import metrics_over_time
from gpusim.trace.trace import Trace

COUNTERS = ("owners", "counters", "rates")
SCALES = {"seconds": 1e-9, "ratio": 1e-6}  # what a column of metrics of a unit counts
_SAME = ("device", "host", "tenant", "request")  # left out where all rows have one value


def timeline(found: Activities) -> str:
    """Text of a blob: rows by rising start, counters one after the other."""
    rows = found.rows
    columns: dict[str, npt.NDArray[Any]] = {
        "start": rows["start"], "span": rows["end"] - rows["start"], "lane": rows["lane"], "kind": rows["kind"],
        "name": rows["name"], "bytes": rows["bytes"], "op": rows["op"], "unit": rows["unit"],
        "back": np.where(rows["cause"] == NONE, 0, np.arange(len(rows)) - rows["cause"]),  # rows from the cause to it
    }  # fmt: skip
    for name in _SAME:
        if len(rows) and (rows[name] != rows[name][0]).any():
            columns[name] = rows[name]
    lists: dict[str, list[str]] = {}
    rising = ["start"]
    for group in COUNTERS:
        lists[group] = list(getattr(found, group))
        for i, (times, values) in enumerate(getattr(found, group).values()):
            columns[f"{group}.{i}.time"], columns[f"{group}.{i}.value"] = times, values
            rising += [f"{group}.{i}.time", f"{group}.{i}.value"]
    about = {
        "kinds": list(KINDS), "names": list(found.names), "lanes": [[one.name, one.group, one.number] for one in found.lanes],
        "meanings": {name: METRICS[f"{name}_ns"].meaning for name in found.names if f"{name}_ns" in METRICS}, **lists,
        "colours": _paints(lists["owners"]), "device": found.device,
    }  # fmt: skip
    return packed(about, columns, rising)


def _paints(categories: Sequence[str]) -> dict[str, str]:
    names = sorted(categories, key=lambda c: (c not in CATEGORIES, c))
    return {name: to_hex(colour) for name, colour in zip(names, colours(names, True), strict=True)}


def metrics(run: Result, trace: Trace | None, rows: Activities) -> str:
    """Text of a blob: the metrics over time of a run with its log; "" of a run without times.

    Columns are whole numbers of `scale`: bytes, ns, millionths of a ratio, counts.
    """
    try:
        found = metrics_over_time(run, trace, rows)
    except GpusimError:
        return ""
    columns: dict[str, npt.NDArray[Any]] = {"at": found.at}
    families = []
    for name, family in found.families.items():
        scale, labels = SCALES.get(family.unit, 1.0), list(found.curves[name])
        for i, values in enumerate(found.curves[name].values()):
            columns[f"{name}.{i}"] = np.rint(values / scale).astype(np.int64)
        families.append({
            "name": name, "group": family.group, "unit": family.unit, "counter": family.kind == COUNTER,
            "meaning": family.meaning, "scale": scale, "labels": labels,
        })  # fmt: skip
    return packed({"families": families, "nothing": list(found.nothing)}, columns, list(columns))


def rows_of(run: Result, trace: Trace | None) -> Activities | str:
    """The activities of a run with its log; a sentence where there can be none."""
    try:
        return activities_of(run, trace)
    except GpusimError as error:
        return f"{error.message}{f' ({error.hint})' if error.hint else ''}"


def address_map(run: Result, trace: Trace | None) -> str:
    """Text of a blob: the boxes of blocks and segments, and the holes at sampled times; "" of a run without such a log."""
    if run.log is None or not len(run.log):
        return ""
    block, segment, hole = heap(run)
    order = np.argsort(block.start, kind="stable")
    block = block.pick(order)
    known: Mapping[str, Sequence[str]] = {} if trace is None else {
        str(run.spec.get("trace")): [trace.categories[c] for c in trace.category]
    }  # fmt: skip
    group, names, categories = held(run, block, known)
    about = {
        "names": list(names), "colours": [to_hex(colour) for colour in colours(names, categories)], "end": end(run),
        "requests": run.spec.get("clock") == "request", "worst": hole.worst,
        "capacity": run.spec.get("capacity"),
    }  # fmt: skip
    columns = {
        "start": block.start, "span": block.end - block.start, "addr": block.addr, "bytes": block.bytes, "unit": block.unit,
        "group": group, "seg.start": segment.start, "seg.span": segment.end - segment.start, "seg.addr": segment.addr,
        "seg.bytes": segment.bytes, "hole.time": np.round(hole.time).astype(np.int64), "hole.free": hole.free,
        "hole.largest": hole.largest, "hole.addr": hole.largest_addr,
    }  # fmt: skip
    return packed(about, columns, ["start", "seg.start", "hole.time"])
