"""Bring in what the next k kernels use, nearest first, and keep what they use and is here already.

What a framework does that has seen the step before (vDNN, TFLMS): the order of kernels is known for a bounded window.

Source: M. Rhu et al., "vDNN: Virtualized deep neural networks for scalable, memory-efficient neural network design", MICRO
2016; T. D. Le et al., "TFLMS: Large model support in TensorFlow by graph rewriting", 2018.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from gpusim.policies.compiled import verb
from gpusim.policies.contract import ABSENT, NOTE, PROPOSE

PARAMS = {"k": 4}
KNOWS = "window"


def state(n_units: int, n_ops: int, params: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    """[k, number of operators]"""
    return np.array([int(params[0]), n_ops], np.int64)


@verb(PROPOSE)
def propose(S, k, acc_start, acc_unit, where, out):  # type: ignore[no-untyped-def]
    n = 0
    last = min(k + S[0], S[1] - 1)
    for i in range(acc_start[k + 1], acc_start[last + 1]):
        if where[acc_unit[i]] != ABSENT and n < out.size:
            out[n] = acc_unit[i]
            n += 1
    return n


@verb(NOTE)
def note(S, unit, k, missed):  # type: ignore[no-untyped-def]
    return 0
