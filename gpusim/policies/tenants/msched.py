"""Working sets switch with programs, and what runs last leaves first."""

from __future__ import annotations

from gpusim.policies.tenant_memory import TenantSeen, TenantsView, TenantTurn


def msched(view: TenantsView, quantum: float = 1.0) -> TenantTurn | None:
    """One program has the GPU for a quantum of seconds, then the next; its memory is there when its turn begins.

    Turns are known ahead, so that memory of the program whose next turn is farthest away leaves first: of programs in a
    ring the one that has just run, where `nvshare` sends away the one that is next.

    Of the paper this is the order of eviction and the copy in one piece.  A working set here is all that a program claims; the
    paper predicts it from the arguments of the next kernels, and copies while other kernels run.  None of its numbers
    is reproduced: its programs are not public.

    Source: W. Shen, Y. Chen, R. Chen, H. Chen, "Towards fully-fledged GPU multitasking via proactive memory scheduling",
    arXiv 2512.24637
    """
    if view.of(view.running) is not None and not view.over:
        return None
    ring = view.in_turn()
    for one in ring:
        at = ring.index(one)
        turns = [*ring[at + 1 :], *ring[:at]]

        def distance(other: TenantSeen, turns: list[TenantSeen] = turns) -> int:
            return turns.index(other) if other in turns else len(turns)

        leave = view.room(one, sorted(view.tenants, key=lambda other: -distance(other)))
        if leave is not None:
            return TenantTurn(one.number, quantum * 1e9, leave)
    return None
