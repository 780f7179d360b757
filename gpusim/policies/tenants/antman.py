"""The first program runs as if alone; the others fill its gaps, with what memory it leaves."""

from __future__ import annotations

from gpusim.policies.tenant_memory import TenantsView, TenantTurn


def antman(view: TenantsView, slice_ms: float = 1.024) -> TenantTurn | None:
    """The program of the lowest number keeps all of its memory and has the GPU at once when it has something to run.

    The others have what it leaves, the first as much as it wants: their tensors above that are in host memory and are copied in
    before their use.  They grow again when the first program has ended.  One runs when the first has had nothing to run at the
    end of a slice.  Without room for its largest operator a program waits; one that is there keeps that room.

    Source: W. Xiao et al., "AntMan: dynamic scaling on GPU clusters for deep learning", OSDI 2020.  There, an opportunistic job
    uses tensors in host memory where they are, and learns idle times from operators; here it copies them, and finds gaps by
    turns.  No number of the paper is reproduced.
    """
    first, running, limits = view.tenants[0], view.of(view.running), view.in_order()
    if running is not None and not view.over and (running == first or (running.ready and not first.ready)):
        return None  # the first program may come back within its slice
    ready = sorted(view.in_turn(), key=lambda one: one.number != first.number)
    one = next((one for one in ready if one.number in limits), None)
    return TenantTurn(one.number, slice_ms * 1e6, limits=limits) if one else None
