"""What a number comes to at each of some moments, from the rows or steps that make it up.

All functions take times in ns, int64, and answer float64 of the length of `at`, which must grow.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

F64 = npt.NDArray[np.float64]
I64 = npt.NDArray[np.int64]


def counted(times: npt.NDArray[Any], at: I64) -> F64:
    """How many of the times have come."""
    return np.searchsorted(np.sort(times), at, side="right").astype(np.float64)


def summed(times: npt.NDArray[Any], amounts: npt.NDArray[Any], at: I64) -> F64:
    """The sum of the amounts whose times have come."""
    order = np.argsort(times, kind="stable")
    total = np.concatenate([[0.0], np.cumsum(amounts[order], dtype=np.float64)])
    found: F64 = total[np.searchsorted(times[order], at, side="right")]
    return found


def spent(starts: npt.NDArray[Any], ends: npt.NDArray[Any], at: I64) -> F64:
    """Time that has passed inside the spans, ns; where several overlap, in each of them."""
    return _since(starts, at) - _since(ends, at)


def covered(starts: npt.NDArray[Any], ends: npt.NDArray[Any], at: I64) -> F64:
    """Time that has passed inside at least one of the spans, ns."""
    if not len(starts):
        return np.zeros(len(at))
    order = np.argsort(starts, kind="stable")
    begin, reach = starts[order], np.maximum.accumulate(ends[order])
    first = np.concatenate([[True], begin[1:] > reach[:-1]])
    last = np.concatenate([first[1:], [True]])
    return spent(begin[first], reach[last], at)


def integrated(times: npt.NDArray[Any], rates: npt.NDArray[Any], at: I64) -> F64:
    """What a rate per second, a level as of `level`, has come to: its integral over time."""
    if not len(times):
        return np.zeros(len(at))
    total = np.concatenate([[0.0], np.cumsum(rates[:-1] * (np.diff(times) / 1e9))])
    latest = np.searchsorted(times, at, side="right") - 1
    since = np.maximum(at - times[latest], 0) / 1e9
    found: F64 = np.where(latest >= 0, total[latest] + rates[latest] * since, 0.0)
    return found


def level(times: npt.NDArray[Any], values: npt.NDArray[Any], at: I64) -> F64:
    """The latest value; each holds until the next time, and before the first there is 0."""
    found = np.searchsorted(times, at, side="right")
    return np.asarray(np.concatenate([[0.0], values])[found], np.float64)


def extremes(times: npt.NDArray[Any], values: npt.NDArray[Any], begin: I64, end: I64) -> tuple[F64, F64]:
    """(least, most) that a level comes to in each of the spans [begin, end), which follow each other."""
    known = np.concatenate([[0.0], values, values[-1:]])
    first = np.searchsorted(times, begin, side="right")  # the value that holds when a span begins
    last = np.maximum(np.searchsorted(times, end, side="left"), first)
    edges = np.stack([first, last + 1], axis=1).ravel()
    return np.minimum.reduceat(known, edges)[::2], np.maximum.reduceat(known, edges)[::2]


def _since(times: npt.NDArray[Any], at: I64) -> F64:
    """The sum of the times that have passed since each of `times` that has come."""
    ordered = np.sort(times)
    come = np.searchsorted(ordered, at, side="right")
    total = np.concatenate([[0], np.cumsum(ordered, dtype=np.int64)])  # exact: spans in ns
    return np.asarray(come * at - total[come], np.float64)
