"""Programs that have one GPU together, and how."""

from __future__ import annotations

from typing import Any

import numpy as np
from coupled_programs import program_of
from hand_worked import Steps

from gpusim.machine.tenancy import SLICES, Switch, Tenancy, Tenant
from gpusim.trace.trace import COLLECTIVE, COPY_PEER, KERNEL, Trace

S = 1000  # ns of a slice
FREE = Switch(fixed=0.0, state=0)


def kernels(*ns: int, launch: str | None = None, at: int = 0) -> Steps:
    """One behind the other; without a launch each fills the GPU."""
    steps = Steps()
    if at:
        steps.until(at)
    for each in ns:
        steps.kernel(each, launch=launch)
    return steps


def slices(count: int = 2, switch: Switch = FREE) -> Tenancy:
    return Tenancy(SLICES, (Tenant(slice=S),) * count, switch)


def three_tensors() -> Steps:
    """Each written, then each read, after a wait of the host: kernels of 1000."""
    steps = Steps()
    tensors = [steps.alloc() for _ in range(3)]
    for tensor in tensors:
        steps.kernel(1000, writes=(tensor,))
    for tensor in tensors:
        steps.sync()
        steps.kernel(1000, reads=(tensor,))
    return steps


def random_programs(rng: Any) -> list[Trace]:
    """Two to four random programs for one GPU: what would meet other GPUs is a kernel."""
    traces = [program_of(rng) for _ in range(int(rng.integers(2, 5)))]
    for trace in traces:
        trace.activity.setflags(write=True)
        trace.activity[np.isin(trace.activity, (COLLECTIVE, COPY_PEER))] = KERNEL
    return traces
