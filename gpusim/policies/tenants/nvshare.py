"""One program at a time, for a quantum."""

from __future__ import annotations

from gpusim.policies.tenant_memory import TenantsView, TenantTurn


def nvshare(view: TenantsView, quantum: float = 30.0) -> TenantTurn | None:
    """One program has the GPU for a quantum of seconds, then the next; only as much memory leaves as is missing.

    Memory of the program that has waited longest leaves first.  A program that waits for its host keeps its turn: nvshare ends
    a turn early only after 5 s without work, which is not modelled.

    Source: G. Alexopoulos, D. Mitropoulos, "nvshare: practical GPU sharing without memory size constraints", ICSE 2024;
    grgalex/nvshare @417fe8cd, src/client.c (early release)
    """
    if view.of(view.running) is not None and not view.over:
        return None
    for one in view.in_turn():
        leave = view.room(one, sorted(view.tenants, key=lambda other: -other.waited))
        if leave is not None:
            return TenantTurn(one.number, quantum * 1e9, leave)
    return None
