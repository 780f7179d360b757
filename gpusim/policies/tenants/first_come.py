"""Memory as programs come; one that finds none waits until others have ended."""

from __future__ import annotations

from gpusim.policies.tenant_memory import TenantsView, TenantTurn


def first_come(view: TenantsView, slice_ms: float = 1.024) -> TenantTurn | None:
    """Programs have memory in the order of their numbers and keep it to their end; one without room waits, and all behind it.

    Those that have memory take turns of a slice.  Nothing is copied.
    """
    if view.goes_on():
        return None
    queue = [one for one in view.tenants if not one.there]
    for one in view.in_turn():
        if one.there or (one == queue[0] and one.claim <= view.free):
            return TenantTurn(one.number, slice_ms * 1e6)
    return None
