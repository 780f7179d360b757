"""Several programs on one GPU: kernels per second of all of them together.

    python benchmarks/tenants.py

Equal training programs (`benchmarks/many.py`), in time slices of 1,024 us, under MPS, and side by side on GPUs of their own.
Speeds are of CPU time of the island alone.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial

from many import programs
from timed import memory, simulation, timed

from gpusim.engine import state
from gpusim.engine.run.coupled import Coupled
from gpusim.engine.run.side_by_side import SideBySide
from gpusim.machine.tenancy import WAYS, Switch, Tenancy, Tenant
from gpusim.machine.topology.connections import Connections
from gpusim.trace.workload import Workload

APART = "a GPU each"


def island(works: list[Workload], tenants: int, way: str) -> tuple[float, int]:
    """(CPU seconds of the island, kernels of all programs)"""
    runs = [simulation(works[i % len(works)], memory(works[i % len(works)], 1.01), "none") for i in range(tenants)]
    if way == APART:
        beside = SideBySide(runs)
    else:
        beside = Coupled(runs, Connections(tenancy=Tenancy(way, (Tenant(),) * tenants, Switch(bandwidth=1555.0))))
    seconds, reason = timed(partial(beside.advance, state.NEVER))
    assert reason == state.FINISHED and all(run.reason == state.FINISHED for run in runs), reason
    return seconds, sum(int(run.island.tenants[0]["kernels"]) for run in runs)


def loads() -> dict[str, Callable[[], float]]:
    """name -> CPU seconds of one run, for side_by_side.py."""
    works = programs(5_000)
    return {f"{way}, 8 programs": lambda w=way: island(works, 8, w)[0] for way in WAYS}


def main() -> int:
    works = programs(20_000)
    print(f"{'programs':>8} {'how':12} {'kernels':>10} {'seconds':>8} {'thousand kernels/s':>19}")
    for tenants in (1, 2, 8):
        for way in (APART, *WAYS):
            island(programs(200), tenants, way)  # compiles, or finds the cache
            seconds, kernels = island(works, tenants, way)
            print(f"{tenants:8} {way:12} {kernels:10,} {seconds:8.3f} {kernels / seconds / 1e3:19.0f}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
