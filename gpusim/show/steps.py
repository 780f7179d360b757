"""Step curves with as many points as can be seen: a run of a million events is drawn as fast as one of a thousand."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


def visible(time: Floats, level: Floats, columns: int, *, step: bool = True) -> tuple[Floats, Floats]:
    """The points of a step curve (of straight lines without `step`) that make a difference in a panel so many columns of
    pixels wide.

    Of the points in one column the first, the last, the lowest and the highest remain, so that what is covered stays
    the same to a pixel.  The ends of the curve remain in any case.
    """
    turns = np.flatnonzero(np.diff(level)) + 1
    turns = np.flatnonzero(np.diff(level)) + 1
    kept = np.unique(np.concatenate([[0], turns, turns[:0] if step else turns - 1, [len(level) - 1]]))
    if len(kept) > 4 * columns and time[-1] > time[0]:
        column = ((time[kept] - time[0]) * (columns / (time[-1] - time[0]))).astype(np.int64)
        by_level = np.lexsort((level[kept], column))
        ends = [_first(column), _last(column), by_level[_first(column)], by_level[_last(column)]]
        kept = kept[np.unique(np.concatenate(ends))]
    return time[kept], level[kept]


def _first(column: npt.NDArray[np.int64]) -> npt.NDArray[np.intp]:
    """Where each group of a rising array begins; sorting within groups does not move it."""
    return np.flatnonzero(np.diff(column, prepend=column[0] - 1))


def _last(column: npt.NDArray[np.int64]) -> npt.NDArray[np.intp]:
    return np.flatnonzero(np.diff(column, append=column[-1] + 1))
