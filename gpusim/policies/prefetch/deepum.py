"""Each kernel asks for what the one `degree` kernels later uses; what the kernels up to there use stays.

Every tensor is asked for once per use, and not again if it leaves in between: a demand brings it then.  The paper learns the
order of kernels from earlier iterations; here it is known, as the study of G10 takes it.

Source: J. Jung et al., "DeepUM: Tensor migration and prefetching in unified memory", ASPLOS 2023.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from gpusim.policies.compiled import verb
from gpusim.policies.contract import ABSENT, HOST, NOTE, PROPOSE

PARAMS = {"degree": 8}
KNOWS = "window"


def state(n_units: int, n_ops: int, params: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    """[degree, number of operators]"""
    return np.array([int(params[0]), n_ops], np.int64)


@verb(PROPOSE)
def propose(S, k, acc_start, acc_unit, where, out):  # type: ignore[no-untyped-def]
    n = 0
    ahead = k + S[0]
    for j in range(k + 1, min(ahead, S[1] - 1) + 1):
        for i in range(acc_start[j], acc_start[j + 1]):
            u = acc_unit[i]
            wanted = where[u] != ABSENT and (j == ahead or where[u] != HOST)
            if wanted and n < out.size:
                out[n] = u
                n += 1
    return n


@verb(NOTE)
def note(S, unit, k, missed):  # type: ignore[no-untyped-def]
    return 0
