"""Which numbers of a profile say nothing of a run, although every profile has them."""

from __future__ import annotations

from collections.abc import Iterable

from gpusim.machine.chain import FRESH, LOCAL, READY, read
from gpusim.machine.transfer_times import ALLOCATED, FREED, calls
from gpusim.trace.submission import EAGER, submission
from gpusim.trace.trace import HOST_WORK, Trace


def unread(source: object, chains: Iterable[str]) -> frozenset[str]:
    """Paths of numbers that no run of this program over these tiers uses: an eager framework's time where it has none, costs of
    host memory that is neither had nor given back, what is left of rates where all memory is near."""
    trace = source if isinstance(source, Trace) else None
    tiers = [tier for chain in chains for tier in read(chain)]
    far = any(tier.numa != LOCAL for tier in tiers)
    taken = [tier for tier in tiers if tier.pool != READY]

    def has(name: str) -> bool:
        return trace is not None and bool(calls(trace, (name,)).any())

    uses = {
        "launch.eager": trace is not None and submission(trace) == EAGER,
        "host.numa_remote": far,
        "host.cpu_remote": far and trace is not None and bool((trace.activity == HOST_WORK).any()),
        "allocation.host_alloc_per_gib": has(ALLOCATED) or any(not tier.pageable for tier in taken),
        "allocation.host_free_per_gib": has(FREED) or any(tier.pool == FRESH for tier in taken),
        "allocation.first_touch_per_gib": any(tier.pageable for tier in taken),
    }
    return frozenset(path for path, used in uses.items() if not used)
