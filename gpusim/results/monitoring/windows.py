"""Functions of PromQL over windows, on samples at even distances: a window holds the `count` latest samples."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from gpusim.results.monitoring.curves import F64


def windows(values: F64, count: int) -> npt.NDArray[np.float64]:
    """(N, count) the samples in the window of each moment, the oldest first; nan before the first sample."""
    padded = np.concatenate([np.full(count - 1, np.nan), values])
    return np.lib.stride_tricks.sliding_window_view(padded, count)


def increase(values: F64, count: int) -> F64:
    """By how much a counter grew within the window; nan where it has fewer than two samples."""
    seen = windows(values, count)
    known = ~np.isnan(seen)
    first = seen[np.arange(len(seen)), np.argmax(known, axis=1)]
    return np.where(known.sum(axis=1) > 1, values - first, np.nan)


def rises(values: F64, count: int) -> npt.NDArray[np.int64]:
    """How often the value changed within the window, 0 where it also fell."""
    moved = np.diff(windows(values, count), axis=1)
    return np.where((moved < 0).any(axis=1), 0, (moved != 0).sum(axis=1, where=~np.isnan(moved)))


def grown(values: F64, count: int) -> F64:
    """By how much the value is above the least within the window."""
    with np.errstate(all="ignore"):
        return np.asarray(values - np.fmin.reduce(windows(values, count), axis=1))


def ahead(values: F64, count: int, step: float, seconds: float) -> F64:
    """The value in so many seconds, by a straight line through the window's samples, which are `step` seconds apart.

    nan where it has fewer than two samples.
    """
    seen = windows(values, count)
    known = ~np.isnan(seen)
    x = np.where(known, np.arange(1 - count, 1) * step, 0.0)
    y = np.where(known, seen, 0.0)
    n = known.sum(axis=1)
    with np.errstate(all="ignore"):
        mean_x, mean_y = x.sum(axis=1) / n, y.sum(axis=1) / n
        apart = np.where(known, x - mean_x[:, None], 0.0)
        slope = (apart * y).sum(axis=1) / (apart**2).sum(axis=1)
        return np.where(n > 1, mean_y + slope * (seconds - mean_x), np.nan)


def lasting(truth: npt.NDArray[np.bool_], count: int) -> npt.NDArray[np.bool_]:
    """Where it has held at each of the `count` + 1 latest moments: what `for` of an alert asks."""
    ends = np.cumsum(truth)
    before = np.concatenate([np.zeros(count + 1, ends.dtype), ends])[: len(ends)]
    return np.asarray(ends - before == count + 1)
