"""The first program loses no more than a share to the others, which have what memory it leaves."""

from __future__ import annotations

from gpusim.policies.tenant_memory import TenantsView, TenantTurn


def tgs(view: TenantsView, loss: float = 0.05, slice_ms: float = 1.024) -> TenantTurn | None:
    """The program of the lowest number keeps its memory; the others have turns as long as it lacks at most `loss` of its time.

    When it has nothing to run, and also when it has, if what it has lost so far is below that share of its turns: so the others
    progress beside a program that never pauses, too.  Their tensors above what it leaves are in host memory and are copied in
    before their use.

    Source: B. Wu et al., "Transparent GPU sharing in container clouds for deep learning workloads", NSDI 2023.  There the rate
    of the opportunistic job's kernels is raised until the other one slows down, and memory is the driver's unified memory.
    Compared with 12 pairs that Tally's authors measured under TGS (docs/tenants.md), which it misses by 34 %.
    """
    first, running, limits = view.tenants[0], view.of(view.running), view.in_order()
    spared = first.lost < loss * first.had or not first.ready
    if running is not None and not view.over and (running == first or (running.ready and spared)):
        return None
    ready = sorted(view.in_turn(), key=lambda one: (one.number == first.number) == spared)
    one = next((one for one in ready if one.number in limits), None)
    return TenantTurn(one.number, slice_ms * 1e6, limits=limits) if one else None
