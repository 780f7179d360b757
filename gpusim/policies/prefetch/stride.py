"""After two misses the same distance apart, bring in the units that lie at the next `degree` multiples of it.

Distances are between tensor ids, that is in the order of creation: a backward pass walks them downwards.

Source: J. W. C. Fu, J. H. Patel, B. L. Janssens, "Stride directed prefetching in scalar processors", MICRO 1992.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from gpusim.policies.compiled import verb
from gpusim.policies.contract import HOST, NOTE, PROPOSE

PARAMS = {"degree": 4}
KNOWS = "past"

DEGREE, UNITS, LAST, STRIDE, STEADY, FRESH = range(6)


def state(n_units: int, n_ops: int, params: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    """[degree, units, last miss, distance to the one before, distance seen twice, a miss since the last proposal]"""
    return np.array([int(params[0]), n_units, -1, 0, 0, 0], np.int64)


@verb(PROPOSE)
def propose(S, k, acc_start, acc_unit, where, out):  # type: ignore[no-untyped-def]
    if not S[FRESH] or not S[STEADY]:
        return 0
    S[FRESH] = 0
    n = 0
    for i in range(1, S[DEGREE] + 1):
        u = S[LAST] + i * S[STRIDE]
        if 0 <= u < S[UNITS] and where[u] == HOST and n < out.size:
            out[n] = u
            n += 1
    return n


@verb(NOTE)
def note(S, unit, k, missed):  # type: ignore[no-untyped-def]
    if missed:
        stride = unit - S[LAST]
        S[STEADY] = 1 if S[LAST] >= 0 and stride == S[STRIDE] and stride != 0 else 0
        S[STRIDE] = stride
        S[LAST] = unit
        S[FRESH] = 1
    return 0
