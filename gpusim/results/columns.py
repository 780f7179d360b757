"""Arrays of a result as they lie on disk: integers in the smallest type that holds them, times as differences."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from gpusim.results.log import LOG


def narrow(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Integers in the smallest signed type that holds them; floats as they are."""
    if values.dtype.kind in "iu" and len(values):
        low, high = values.min(), values.max()
        for small in (np.int8, np.int16, np.int32):
            if np.iinfo(small).min <= low and high <= np.iinfo(small).max:
                return values.astype(small)
    return values


def widen(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Integers as int64 again; floats as they are."""
    return values.astype(np.int64) if values.dtype.kind in "iu" else values


def pack_log(log: npt.NDArray[Any]) -> dict[str, npt.NDArray[Any]]:
    """The event log as narrow columns."""
    columns = {name: log[name] for name in LOG.names or ()}
    columns["t"] = np.diff(columns["t"], prepend=np.int64(0))  # time only grows: differences are small
    return {name: narrow(column) for name, column in columns.items()}


def unpack_log(columns: Mapping[str, npt.NDArray[Any]]) -> npt.NDArray[Any]:
    """The inverse of pack_log."""
    log = np.zeros(len(columns["t"]), LOG)
    for name in LOG.names or ():
        log[name] = np.cumsum(columns[name], dtype=np.int64) if name == "t" else columns[name]
    return log
