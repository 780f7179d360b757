"""The event log by columns, each of them in one piece: all that reads it goes through columns."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from gpusim.trace.trace import I64


class Records:
    """R records, with the columns of results.log.LOG."""

    def __init__(self, log: npt.NDArray[Any]) -> None:
        self._columns: dict[str, I64] = {name: np.ascontiguousarray(log[name]) for name in log.dtype.names or ()}

    def __getitem__(self, column: str) -> I64:
        return self._columns[column]

    def __len__(self) -> int:
        return len(self._columns["t"])
