"""Tensors of one role stay in the nearest tier, where kernels read and write them over the link.

what    optimizer, parameters, gradients, activations or inputs
access  bytes that a group of threads reads or writes there at once: 128 coalesced, which fills the link, 32 scattered, which
        reaches a quarter of it

They are never on the device and never copied; kernels that use them run at the speed of the link.  This pays for what is used
once in a step, such as optimizer state.

Source: S. W. Min et al., "Large graph convolutional network training with GPU-oriented data communication architecture", VLDB
2021 (zero-copy access by the kernels of a training step); CUDA programming guide, "Mapped memory".
"""

from __future__ import annotations

import numpy as np

from gpusim.base.errors import PolicyError, suggest
from gpusim.policies.planning import NOTHING, Schedule, View
from gpusim.trace.roles import ACTIVATION, GRADIENT, INPUT, OPTIMIZER, PARAMETER, roles

PARAMS = {"what": "optimizer", "access": 128}
LIMITS = {"access": 128}
KNOWS = "future"
ROLE_OF = {
    "optimizer": OPTIMIZER, "parameters": PARAMETER, "gradients": GRADIENT, "activations": ACTIVATION, "inputs": INPUT,
}  # fmt: skip


def plan(view: View, what: str = "optimizer", access: int = 128) -> Schedule:
    if what not in ROLE_OF:
        hint = suggest(what, ROLE_OF)
        raise PolicyError(f"parameter 'what' of policy 'zero_copy' is '{what}'", hint=hint)
    if access < 1:
        raise PolicyError("parameter 'access' of policy 'zero_copy' is 0", hint="128 coalesced, 32 scattered")
    trace = view.work.trace
    if not view.tiers:
        return NOTHING
    return Schedule(NOTHING.actions, np.flatnonzero((roles(trace) == ROLE_OF[what]) & (trace.size > 0)), access)
