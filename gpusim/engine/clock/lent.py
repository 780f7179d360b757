"""Memory that a device has lent and gets back."""

from __future__ import annotations

from gpusim.base.compiled import outlined
from gpusim.engine.state import Island


@outlined
def returned(isl: Island, account: int, size: int) -> None:
    """Bytes of a lender are free again; its host may wait for that."""
    a, fluid = isl.accounts[account], isl.fluid[0]
    a.lent -= size
    if a.wanted:
        fluid.calls = fluid.reshare = 1


@outlined
def ended(isl: Island, row: int) -> None:
    """The copy ends after which a lender's memory is free."""
    x = isl.activities[row]
    if x.called:
        isl.accounts[x.gives_to].coming -= x.gives
    returned(isl, x.gives_to, x.gives)
    x.gives = x.called = 0
