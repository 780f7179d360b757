"""Programs that have one GPU together, and how."""

from __future__ import annotations

from hand_worked import Steps

from gpusim.machine.tenancy import SLICES, Switch, Tenancy, Tenant

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
