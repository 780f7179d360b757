"""Results as columns: what result.json says of a run, of many runs together.

A column is an array where all its values are integers, or all floats; else it holds numbers of distinct values, which are kept
as JSON.  So what is unpacked is equal to what was packed, types included.

    header   JSON as bytes: format, version, and of each column its section, name and kind, and the values that it numbers
    keys     of the runs
    ints     int64[columns, runs], floats float64[columns, runs]
    absent   bool[integer and float columns, runs]: the run has no such number
    codes    int32[other columns, runs]: which of the values, -1 for none
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from gpusim.base.errors import ResultError

FORMAT, VERSION = "gpusim-runs", 1
SECTIONS = ("spec", "metrics", "bounds")  # of a run: tables by name
WORDS = ("outcome", "failure", "faults")  # of a run: one value
_LARGEST = 2**63
_ABSENT: Any = object()

Row = Mapping[str, Any]  # SECTIONS and WORDS -> plain values
Arrays = dict[str, npt.NDArray[Any]]


@dataclass(frozen=True)
class _Column:
    section: str
    name: str
    kind: str  # "ints", "floats" or "codes"
    texts: tuple[str, ...] = ()  # JSON that codes stand for

    def plain(self) -> dict[str, Any]:
        return {"section": self.section, "name": self.name, "kind": self.kind, "values": list(self.texts)}


def pack(rows: Mapping[str, Row]) -> Arrays:
    """The arrays of these runs, by key; ResultError for a value that JSON does not have."""
    keys, values = list(rows), list(rows.values())
    columns: list[_Column] = []
    arrays: dict[str, list[Any]] = {"ints": [], "floats": [], "codes": []}
    absent: dict[str, list[Any]] = {"ints": [], "floats": []}
    for section, name, found in _columns(values):
        kind = _kind(found)
        if kind == "codes":
            texts = [None if value is _ABSENT else _text(value) for value in found]
            known = {text: i for i, text in enumerate(dict.fromkeys(text for text in texts if text is not None))}
            arrays[kind].append([-1 if text is None else known[text] for text in texts])
            columns.append(_Column(section, name, kind, tuple(known)))
        else:
            absent[kind].append([value is _ABSENT for value in found])
            arrays[kind].append([0 if value is _ABSENT else value for value in found])
            columns.append(_Column(section, name, kind))
    header = {"format": FORMAT, "version": VERSION, "columns": [column.plain() for column in columns]}
    return {
        "header": np.frombuffer(json.dumps(header, sort_keys=True).encode(), np.uint8),
        "keys": np.array([key.encode() for key in keys], "S"),
        "ints": _matrix(arrays["ints"], keys, np.int64),
        "floats": _finite(_matrix(arrays["floats"], keys, np.float64)),
        "absent": _matrix([*absent["ints"], *absent["floats"]], keys, np.bool_),
        "codes": _matrix(arrays["codes"], keys, np.int32),
    }


def unpack(arrays: Mapping[str, npt.NDArray[Any]], only: Iterable[str] | None = None) -> dict[str, Row]:
    """The runs that were packed, or those of these keys.

    KeyError, ValueError, TypeError: these are not such arrays.
    """
    header = json.loads(arrays["header"].tobytes())
    if (header["format"], header["version"]) != (FORMAT, VERSION):
        raise ValueError("another format")
    keys = [key.decode() for key in arrays["keys"].tolist()]
    wanted = None if only is None else set(only)
    at = np.array([i for i, key in enumerate(keys) if wanted is None or key in wanted], np.int64)
    columns = [_Column(c["section"], c["name"], c["kind"], tuple(c["values"])) for c in header["columns"]]
    found = _values(columns, arrays, at)
    parts: dict[str, list[Any]] = {}
    for section in SECTIONS:
        mine = [(column.name, values) for column, values in zip(columns, found, strict=True) if column.section == section]
        parts[section] = _tables(mine, len(at))
    for column, values in zip(columns, found, strict=True):
        if not column.section:
            parts[column.name] = [None if value is _ABSENT else value for value in values]
    rows = zip(*parts.values(), strict=True)
    return {keys[i]: dict(zip(parts, row, strict=True)) for i, row in zip(at.tolist(), rows, strict=True)}


def _columns(rows: Sequence[Row]) -> Iterable[tuple[str, str, list[Any]]]:
    """Section, name and values of each column, in the order in which JSON would have them."""
    for word in WORDS:
        yield "", word, [_plain(row.get(word)) for row in rows]
    for section in SECTIONS:
        tables = [row[section] for row in rows]
        for name in sorted({name for table in tables for name in table}):
            yield section, name, [_plain(table.get(name, _ABSENT)) for table in tables]


def _kind(values: Sequence[Any]) -> str:
    kinds = {type(value) for value in values if value is not _ABSENT}
    if kinds == {int} and all(-_LARGEST <= value < _LARGEST for value in values if value is not _ABSENT):
        return "ints"
    return "floats" if kinds == {float} else "codes"


def _values(columns: Sequence[_Column], arrays: Mapping[str, npt.NDArray[Any]], at: npt.NDArray[Any]) -> list[list[Any]]:
    """The values of each column in these runs, _ABSENT where a run has none."""
    ints = len(arrays["ints"])
    rows = {"ints": 0, "floats": 0, "codes": 0}
    found = []
    for column in columns:
        row = rows[column.kind]
        rows[column.kind] += 1
        values = arrays[column.kind][row][at].tolist()
        if column.kind == "codes":
            known = [*(json.loads(text) for text in column.texts), _ABSENT]  # code -1 is the last
            found.append([known[code] for code in values])
            continue
        gone = arrays["absent"][row + (ints if column.kind == "floats" else 0)][at]
        for i in np.flatnonzero(gone).tolist():
            values[i] = _ABSENT
        found.append(values)
    return found


def _tables(columns: Sequence[tuple[str, list[Any]]], runs: int) -> list[dict[str, Any]]:
    """Of each run its names with their values."""
    if not columns:
        return [{} for _ in range(runs)]
    names = [name for name, _ in columns]
    rows = zip(*(values for _, values in columns), strict=True)
    if not any(value is _ABSENT for _, values in columns for value in values):
        return [dict(zip(names, row, strict=True)) for row in rows]
    return [{name: value for name, value in zip(names, row, strict=True) if value is not _ABSENT} for row in rows]


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def _text(value: Any) -> str:
    try:
        return json.dumps(value, sort_keys=True, allow_nan=False, ensure_ascii=False, default=_number)
    except (TypeError, ValueError) as error:
        raise ResultError(f"this result cannot be written as JSON: {error}") from None


def _number(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__} {value!r} is not a plain value")


def _matrix(rows: list[Any], keys: list[str], dtype: Any) -> npt.NDArray[Any]:
    return np.array(rows, dtype) if rows else np.zeros((0, len(keys)), dtype)


def _finite(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    if not np.isfinite(values).all():
        raise ResultError("this result cannot be written: a number of it is not finite")
    return values
