"""Measurement rows: one value each, in the columns of COLUMNS, as CSV or JSON, standard library only.

A *series* (`series_id`) is one curve or matrix: the rows that one program measured in one go.  A CSV file may begin with lines
"# key: value" that say under which conditions it was measured; JSON holds {"conditions": {...}, "rows": [{...}, ...]}.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import math
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from gpusim.base.errors import MeasurementError, shown, suggest

UNITS = {
    "_bw": "GB/s",
    "_busbw": "GB/s",
    "_gflops": "GFLOP/s",
    "_ns": "ns",
    "_us": "us",
    "_ms": "ms",
    "_cycles": "cycles",
    "_ratio": "x one cudaMalloc of 2 GB",
}
"""What a metric ends with -> its unit."""
HOST = "(none: host)"
"""The `gpu` of what concerns no GPU; every name that begins with "(none" means so."""
NEEDED = ("series_id", "gpu", "metric", "value", "unit")
"""Columns that a file cannot do without."""


@dataclass(frozen=True)
class Row:
    """One measured value."""

    series_id: str
    gpu: str
    """"H100-SXM-80GB", or HOST."""
    system: str
    """The machine it sits in."""
    metric: str
    """What was measured; its ending says the unit."""
    size_bytes: int | None
    param: str
    """What else varied: "key=value;key=value"."""
    value: float
    unit: str
    stat: str
    """Of how many repeats the value is what: "median of 50"."""
    method: str
    source: str
    confidence: str = "seen"
    note: str = ""
    where: str = field(default="", compare=False)
    """ "file:line" when it was read."""

    @property
    def params(self) -> dict[str, str]:
        """`param` as a dictionary; a word without value counts as "yes"."""
        parts = (p.partition("=") for p in self.param.split(";") if p)
        return {key: value if equals else "yes" for key, equals, value in parts}


COLUMNS = tuple(f.name for f in fields(Row) if f.name != "where")


def unit_of(metric: str) -> str:
    """The unit of a metric, by its ending; "" where the ending does not say it."""
    return next((unit for ending, unit in UNITS.items() if metric.endswith(ending)), "")


def held_out(series_id: str) -> bool:
    """Whether a fit must not see this series: one in three, fixed by its name alone."""
    return int(hashlib.sha256(series_id.encode()).hexdigest(), 16) % 3 == 0


def series(rows: Iterable[Row]) -> dict[str, list[Row]]:
    """The rows by series, in the order in which they come."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(row.series_id, []).append(row)
    return found


def gpus(rows: Iterable[Row]) -> list[str]:
    """The GPUs that rows speak of."""
    return list(dict.fromkeys(r.gpu for r in rows if not r.gpu.startswith("(none")))


def of_gpu(rows: Iterable[Row], gpu: str | None = None, file: str = "") -> list[Row]:
    """The rows of one GPU and of its host.  Raises MeasurementError when there are several and none is named."""
    rows = list(rows)
    found = gpus(rows)
    if gpu is None and len(found) > 1:
        names = ", ".join(found[:4]) + (", ..." if len(found) > 4 else "")
        raise MeasurementError(f"holds rows of {len(found)} devices: {names}", file, "name the one that is meant with --gpu")
    if gpu is not None and gpu not in found:
        raise MeasurementError(f"has no rows of '{gpu}'", file, suggest(gpu, found))
    return [r for r in rows if r.gpu.startswith("(none") or r.gpu == (gpu or r.gpu)]


def read(path: Path | str) -> list[Row]:
    """The rows of a CSV or JSON file.  Raises MeasurementError with file and line for the first bad one."""
    return load(path)[0]


def load(path: Path | str) -> tuple[list[Row], dict[str, Any]]:
    """The rows of a file, and the conditions under which they were measured as far as it says them."""
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise MeasurementError("is not text; measurements are CSV or JSON", str(path)) from None
    except OSError as error:
        raise MeasurementError(f"cannot be read: {error.strerror}", str(path)) from None
    if not text.strip():
        raise MeasurementError("is empty", str(path))
    return _from_json(text, str(path)) if text.lstrip().startswith("{") else _from_csv(text, str(path))


def write(path: Path | str, rows: Iterable[Row], conditions: Mapping[str, Any] | None = None) -> None:
    """Write rows: JSON if the name ends so, else CSV.  The file appears when it is complete."""
    path = Path(path)
    cells = [{name: getattr(row, name) for name in COLUMNS} for row in rows]
    if path.suffix == ".json":
        text = json.dumps({"conditions": dict(conditions or {}), "rows": cells}, indent=1, ensure_ascii=False) + "\n"
    else:
        out = io.StringIO()
        for key, value in (conditions or {}).items():
            out.write(f"# {key}: {json.dumps(value, ensure_ascii=False)}\n")
        table = csv.DictWriter(out, COLUMNS, lineterminator="\n")
        table.writeheader()
        table.writerows(cells)
        text = out.getvalue()
    part = path.with_name(path.name + ".part")
    part.write_text(text, encoding="utf-8")
    os.replace(part, path)


def _from_csv(text: str, file: str) -> tuple[list[Row], dict[str, Any]]:
    lines = io.StringIO(text).readlines()  # splitlines would also split at the rarer separators of Unicode
    head = next((i for i, line in enumerate(lines) if not line.startswith("#")), len(lines))
    conditions: dict[str, Any] = {}
    for line in lines[:head]:
        key, _, value = line[1:].strip().partition(": ")
        try:
            conditions[key] = json.loads(value)
        except (ValueError, RecursionError):
            conditions[key] = value
    table = csv.reader(lines[head:])
    try:
        names = next(table, [])
        _need(names, f"{file}:{head + 1}")
        rows = []
        start = head + 1 + table.line_num
        for cells in table:
            where, start = f"{file}:{start}", head + 1 + table.line_num
            if len(cells) > len(names):
                raise MeasurementError(f"has {len(cells)} cells under {len(names)} columns", where, "quote what holds a comma")
            if cells:
                rows.append(_row(dict(zip(names, cells, strict=False)), where))
    except csv.Error as error:
        raise MeasurementError(f"is not CSV: {error}", f"{file}:{head + table.line_num}") from None
    return rows, conditions


def _from_json(text: str, file: str) -> tuple[list[Row], dict[str, Any]]:
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise MeasurementError(f"is not JSON: {error}", file) from None
    if not isinstance(data.get("rows"), list):
        raise MeasurementError("lacks the list 'rows'", file)
    rows = []
    for number, cells in enumerate(data["rows"], 1):
        where = f"{file}: row {number}"
        if not isinstance(cells, dict):
            raise MeasurementError("is not an object of columns", where)
        _need(cells, where)
        rows.append(_row({k: "" if v is None else str(v) for k, v in cells.items()}, where))
    conditions = data.get("conditions", {})
    return rows, conditions if isinstance(conditions, dict) else {}


def _need(names: Iterable[str], where: str) -> None:
    names = list(names)
    for name in NEEDED:
        if name not in names:
            raise MeasurementError(f"lacks the column '{name}'", where, suggest(name, names))


def _row(cells: dict[str, str], where: str) -> Row:
    """One row, checked."""
    for name in NEEDED:
        if not cells.get(name, "").strip():
            raise MeasurementError(f"'{name}' is empty", where)
    metric, unit = cells["metric"], cells["unit"]
    try:
        value = float(cells["value"])
    except ValueError:
        raise MeasurementError(f"value '{shown(cells['value'])}' is not a number", where) from None
    if not math.isfinite(value) or value < 0:
        fault = f"value '{shown(cells['value'])}' of {shown(metric)} cannot be measured"
        raise MeasurementError(fault, where, "leave the row out")
    known = unit_of(metric)
    if known and unit != known:
        fault = f"{shown(metric)} is in {known}, but the unit here is '{shown(unit)}'"
        raise MeasurementError(fault, where, "convert value and unit")
    if unit not in UNITS.values():
        hint = suggest(unit, dict.fromkeys(UNITS.values()))
        raise MeasurementError(f"'{shown(unit)}' is not a unit of measurements", where, hint)
    size = cells.get("size_bytes", "").strip()
    if size and not re.fullmatch(r"\d{1,18}", size):
        raise MeasurementError(f"size_bytes '{shown(size)}' is not a whole number of bytes", where)
    text = {name: cells.get(name) or "" for name in COLUMNS if name not in ("size_bytes", "value")}
    return Row(**text, size_bytes=int(size) if size else None, value=value, where=where)
