"""When what is requested is requested again."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import types

from gpusim.base.compiled import kept

I32 = npt.NDArray[np.int32]
NEVER = -1  # a next use that does not come
_I32 = types.Array(types.int32, 1, "C")


def next_uses(requests: I32, n_units: int) -> I32:
    """Index of the next request of the same page, NEVER when there is none; one pass from the end."""
    out = np.empty(len(requests), np.int32)
    _next_uses(requests, np.full(n_units, NEVER, np.int32), out)
    return out


@kept(types.int64(_I32, _I32, _I32))
def _next_uses(requests: I32, seen: I32, out: I32) -> int:
    for i in range(requests.shape[0] - 1, -1, -1):
        unit = np.uint64(requests[i])
        out[i] = seen[unit]
        seen[unit] = i
    return 0
