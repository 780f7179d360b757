"""Programs take turns from iteration to iteration, between which only lasting memory stays."""

from __future__ import annotations

from gpusim.policies.tenant_memory import TenantsView, TenantTurn


def salus(view: TenantsView, iterations: int = 1) -> TenantTurn | None:
    """Turns end with an iteration.  Weights and optimizer state of all stay; the rest of the memory is the running program's.

    The program with the fewest ns of turns goes next.  Nothing is copied; a program whose memory does not fit beside what lasts
    of the others waits.

    Source: P. Yu, M. Chowdhury, "Fine-grained GPU sharing primitives for deep learning applications", MLSys 2020: one lane,
    fair.  No number of the paper is reproduced.
    """
    if view.of(view.running) is not None and not view.over:
        return None
    for one in sorted(view.in_turn(), key=lambda one: (one.had, one.number)):
        if one.claim - one.there <= view.free:
            return TenantTurn(one.number, 1e18, iterations=int(iterations))
    return None
