"""One number, or one curve, that rows say, and the helpers that find it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from gpusim.calibrate.rows import Row, series

SAID = 0.01  # a point of a curve goes when the others say it as exactly as this
LEAST = 5  # sizes that a curve needs


@dataclass(frozen=True)
class Estimate:
    """A number of a profile in base units, with the least and the most that the rows allow."""

    path: str
    value: float
    rows: tuple[Row, ...]
    how: str
    """From the rows to the value, in a few words."""
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Curve:
    """A curve of a profile: (bytes, bytes/s)."""

    path: str
    points: tuple[tuple[int, float], ...]
    rows: tuple[Row, ...]
    how: str
    residual: float
    """Median of |curve / row - 1|."""


@dataclass(frozen=True)
class Left:
    """A number that stays at the value of the catalogue, and why."""

    path: str
    why: str


Found = Estimate | Curve | Left


def said_by(rows: Sequence[Row]) -> str:
    """The rows as the source of a number: how many, of which series, published by which source."""
    names = list(series(rows))
    shown = ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
    where = list(dict.fromkeys(published(r) for r in rows if r.source))
    return f"{len(rows)} row{'s'[: len(rows) > 1]} of {shown}: {'; '.join(where[:3])}{'; ...' if len(where) > 3 else ''}"


def published(row: Row) -> str:
    """The row's source, as sources of numbers name it."""
    return re.sub(r"https?://(www\.)?", "", row.source)


def best_known(rows: Sequence[Row]) -> list[Row]:
    """The rows of the machine that most of them are from: a link, a host, is that of one machine."""
    counts: dict[str, int] = {}
    for row in rows:
        counts[row.system] = counts.get(row.system, 0) + 1
    most = max(counts, key=lambda name: counts[name], default="")
    return [r for r in rows if r.system == most]


def plateau(path: str, rows: Sequence[Row], of: Callable[[Row], float], how: str) -> Estimate | None:
    """The median, over series, of each series' median at its largest sizes; the bar spans four fifths of the rows used."""
    used: list[Row] = []
    medians = []
    for group in series(rows).values():
        largest = max(r.size_bytes or 0 for r in group)
        top = [r for r in group if (r.size_bytes or 0) >= largest / 2]
        used += top
        medians.append(float(np.median([of(r) for r in top])))
    if not used:
        return None
    values = [of(r) for r in used]
    value = float(np.median(medians))
    if len(used) == 1:
        return Estimate(path, value, tuple(used), how)
    low, high = (float(q) for q in np.quantile(values, (0.1, 0.9)))
    return Estimate(path, value, tuple(used), how, min(low, value), max(high, value))


def middle(path: str, rows: Sequence[Row], values: Sequence[float], how: str) -> Estimate:
    """The median of values, one for each row; the bar spans the middle four fifths."""
    several = len(values) > 1
    low, value, high = (float(q) for q in np.quantile(values, (0.1, 0.5, 0.9)))
    return Estimate(path, value, tuple(rows), how, low if several else None, high if several else None)


def thinned(points: Iterable[tuple[float, float]]) -> tuple[tuple[int, float], ...]:
    """Medians of quarter octaves of (bytes, bytes/s), without those that their neighbours say as well."""
    bins: dict[int, list[tuple[float, float]]] = {}
    for size, rate in points:
        bins.setdefault(int(4 * np.log2(size)), []).append((size, rate))
    kept = [tuple(np.median(np.array(bins[b]), axis=0)) for b in sorted(bins)]
    while len(kept) > 2:
        x, y = np.log2([p[0] for p in kept]), np.array([p[1] for p in kept])
        between = y[:-2] + (y[2:] - y[:-2]) * (x[1:-1] - x[:-2]) / (x[2:] - x[:-2])
        off = np.abs(between / y[1:-1] - 1)
        least = int(np.argmin(off))
        if off[least] > SAID:
            break
        del kept[least + 1]
    return tuple((round(size), float(f"{rate:.4g}")) for size, rate in kept)
