"""Bring in whatever the future needs next and is not here, as far ahead as `ahead` kernels, but only into free room.

Knows the whole program; it never makes room by evicting, so that it cannot push out what is needed sooner.

Source: P. Cao, E. W. Felten, A. R. Karlin, K. Li, "A study of integrated prefetching and caching strategies", SIGMETRICS 1995
(the aggressive strategy, restricted to free room).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from gpusim.policies.compiled import verb
from gpusim.policies.contract import HOST, NOTE, PROPOSE

PARAMS = {"ahead": 256, "most": 8}
KNOWS = "future"
EVICTS = False


def state(n_units: int, n_ops: int, params: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    """[kernels ahead, most units a proposal names, number of operators]"""
    return np.array([int(params[0]), int(params[1]), n_ops], np.int64)


@verb(PROPOSE)
def propose(S, k, acc_start, acc_unit, where, out):  # type: ignore[no-untyped-def]
    n = 0
    last = min(k + S[0], S[2] - 1)
    most = min(S[1], out.size)
    for i in range(acc_start[k + 1], acc_start[last + 1]):
        u = acc_unit[i]
        if where[u] == HOST:
            seen = False
            for j in range(n):
                seen = seen or out[j] == u
            if not seen:
                out[n] = u
                n += 1
                if n >= most:
                    break
    return n


@verb(NOTE)
def note(S, unit, k, missed):  # type: ignore[no-untyped-def]
    return 0
