"""Whole programs leave and come back."""

from __future__ import annotations

from gpusim.policies.tenant_memory import TenantsView, TenantTurn


def suspend_resume(view: TenantsView, quantum: float = 60.0) -> TenantTurn | None:
    """Programs take turns of a quantum of seconds; one that has to make room leaves with all of its memory.

    A program that waits for its host keeps its turn.

    Source: W. Xiao et al., "Gandiva: introspective cluster scheduling for deep learning", OSDI 2018
    """
    if view.of(view.running) is not None and not view.over:
        return None
    for one in view.in_turn():
        leave = view.room(one, sorted(view.tenants, key=lambda other: -other.waited), whole=True)
        if leave is not None:
            return TenantTurn(one.number, quantum * 1e9, leave)
    return None
