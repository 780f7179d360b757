"""A user's own measured kernel times: a CSV file with the columns gpu, operator, dtype, shape, time_us.

    gpu,operator,dtype,shape,time_us
    a100-sxm4-80gb,aten.mm.default,bfloat16,4096x4096 4096x4096 -> 4096x4096,560.1

`gpu` is a machine's name, `shape` a text as traces have it (`gpusim.trace.shapes`).  Rows of one shape are measurements of the
same: their median counts, and how far they are apart is its interval.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from gpusim.base.errors import ProfileError, TraceError
from gpusim.base.text import join
from gpusim.machine.kernels.classes import base
from gpusim.machine.profile import Profile
from gpusim.trace.shapes import parse

COLUMNS = ("gpu", "operator", "dtype", "shape", "time_us")
APART = 1.1
"""Ratio of the longest to the shortest from which on rows of one shape are called contradictory."""

Key = tuple[str, str, str]
"""Operator without namespace and overload, element type, shape."""


@dataclass(frozen=True)
class UserTable:
    """Measured times in ns, each shape's all together, in rising order."""

    times: Mapping[Key, tuple[float, ...]]

    def time(self, key: Key) -> float:
        """ns of a measured operator."""
        return median(self.times[key])

    def at(self, operator: str, dtype: str, shape: str) -> tuple[float, float, float] | None:
        """(ns, log low, log high) of an operator; None where it was not measured."""
        key = (base(operator), dtype, shape)
        if key not in self.times:
            return None
        middle, found = self.time(key), self.times[key]
        return middle, math.log(found[0] / middle), math.log(found[-1] / middle)

    def contradictions(self) -> list[str]:
        """A sentence for each shape whose measurements are apart, the farthest first."""
        wide = [(t[-1] / t[0], key, t) for key, t in self.times.items() if t[-1] / t[0] >= APART]
        return [
            f"{len(t)} rows of {name} {dtype} {shape} are {ratio:.2f}x apart: {t[0] / 1e3:g} to {t[-1] / 1e3:g} us; "
            f"the median counts"
            for ratio, (name, dtype, shape), t in sorted(wide, key=lambda item: -item[0])
        ]


def read(path: Path, profile: Profile) -> UserTable:
    """The table of one machine in a file.  Raises ProfileError for one of another GPU, TraceError for what is no such table."""
    return of_machines(path, [profile])[profile.name]


def of_machines(path: Path, machines: Sequence[Profile]) -> dict[str, UserTable]:
    """Machine -> its table in a file, of those asked for.  Raises ProfileError where none is, TraceError as `tables`."""
    found, names = tables(path), [machine.name for machine in machines]
    if not set(found) & set(names):
        few = names if len(names) < 4 else [f"any of {len(names)} machines"]
        said = f"the table has kernel times of {join(sorted(found))}, not of {join(few)}"
        raise ProfileError(said, str(path), f"ask --on {min(found)}")
    return {name: found[name] for name in names if name in found}


def tables(path: Path) -> dict[str, UserTable]:
    """Machine -> its table in a file.  Raises TraceError for what is no such table."""
    try:
        with path.open(newline="", encoding="utf-8") as file:
            lines = csv.DictReader(file)
            if tuple(lines.fieldnames or ()) != COLUMNS:
                raise TraceError(f"the first line is not '{','.join(COLUMNS)}'", str(path))
            rows = list(lines)
    except OSError as error:
        raise TraceError(f"the table cannot be read: {error.strerror or error}", str(path)) from None
    except (UnicodeDecodeError, csv.Error):
        raise TraceError("this is not a table of text", str(path), f"wanted: {','.join(COLUMNS)}") from None
    if not rows:
        raise TraceError("the table has no rows", str(path))
    times: dict[str, dict[Key, list[float]]] = {}
    for number, row in enumerate(rows, 2):
        key, time = _row(row, f"{path}:{number}")
        times.setdefault(row["gpu"], {}).setdefault(key, []).append(time)
    return {gpu: UserTable({key: tuple(sorted(found)) for key, found in of.items()}) for gpu, of in times.items()}


def _row(row: Mapping[str | None, str | None], where: str) -> tuple[Key, float]:
    if None in row or None in row.values():
        raise TraceError(f"this line has not {len(COLUMNS)} cells", where)
    operator, dtype, shape, text = (str(row[name]) for name in COLUMNS[1:])
    try:
        parse(shape)
    except TraceError as error:
        raise TraceError(error.message, where, error.hint) from None
    try:
        time = float(text) * 1e3
    except ValueError:
        time = math.nan
    if not 0 < time < math.inf:
        raise TraceError(f"'{text}' is no time in microseconds", where)
    return (base(operator), dtype, shape), time
