"""One program at a time, for a quantum."""

from __future__ import annotations

from gpusim.policies.tenant_memory import TenantsView, TenantTurn


def nvshare(view: TenantsView, quantum: float = 30.0) -> TenantTurn | None:
    """One program has the GPU for a quantum of seconds, then the next, and earlier when it has nothing to run.

    Of the others' memory leaves as much as is missing, of those first that were there last.

    Source: G. Alexopoulos, D. Mitropoulos, "nvshare: practical GPU sharing without memory size constraints", ICSE 2024
    """
    if view.goes_on():
        return None
    for one in view.in_turn():
        leave = view.room(one, sorted(view.tenants, key=lambda other: -other.waited))
        if leave is not None:
            return TenantTurn(one.number, quantum * 1e9, leave)
    return None
