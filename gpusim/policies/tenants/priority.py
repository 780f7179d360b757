"""The first program that has something to run has the GPU."""

from __future__ import annotations

from gpusim.policies.tenant_memory import TenantsView, TenantTurn


def priority(view: TenantsView, slice_ms: float = 1.024) -> TenantTurn | None:
    """The program of the lowest number that has something to run has the GPU at once; memory leaves from the highest number.

    A program gives its memory up only to those before it, so that one behind may wait although it has something to run.
    """
    for one in sorted(view.in_turn(), key=lambda one: one.number):
        if one.number == view.running and not view.over:
            return None
        behind = [other for other in reversed(view.tenants) if other.number > one.number]
        leave = view.room(one, behind)
        if leave is not None:
            return TenantTurn(one.number, slice_ms * 1e6, leave)
    return None
