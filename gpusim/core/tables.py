"""Tables of the compiled island: structured arrays whose rows read `tab[i].field` compiled and interpreted alike."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import config


def table(rows: int, dtype: np.dtype[Any]) -> Any:
    """A zeroed table of `rows` records.  Without numba's compiler, rows need numpy's record class for field access by name."""
    array = np.zeros(rows, dtype)
    return array.view(np.recarray) if config.DISABLE_JIT else array
