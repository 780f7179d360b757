"""Tables of the compiled island: structured arrays whose rows read `tab[i].field` compiled and interpreted alike."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import config

i1, i4, i8, f8 = np.int8, np.int32, np.int64, np.float64


class Row(np.record):  # type: ignore[misc]
    """A row of an interpreted table: its fields go before numpy's own attributes, `size`, `data` and `base` are both."""

    def __getattribute__(self, name: str) -> Any:
        fields = np.void.__getattribute__(self, "dtype").fields
        return self[name] if name in fields else super().__getattribute__(name)


def table(rows: int, dtype: np.dtype[Any]) -> Any:
    """A zeroed table of `rows` records; without numba's compiler, of `Row`s."""
    return np.zeros(rows, np.dtype((Row, dtype)) if config.DISABLE_JIT else dtype)


def record(fields: list[tuple[str, Any]]) -> np.dtype[Any]:
    """A row's type from its fields, aligned as C does."""
    return np.dtype(fields, align=True)
