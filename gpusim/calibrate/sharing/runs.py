"""Programs of a published row, run together on one GPU."""

from __future__ import annotations

from collections.abc import Sequence

from gpusim.engine import state
from gpusim.engine.run.claims import Claim
from gpusim.engine.run.coupled import Coupled
from gpusim.engine.run.memory_turns import MemoryTurns
from gpusim.engine.run.simulate import Prepared
from gpusim.machine.profile import Profile
from gpusim.machine.tenancy import SharingWay, Tenancy, switch_of
from gpusim.machine.topology.connections import Connections
from gpusim.policies.registry import get


def together(runs: Sequence[Prepared], shared: SharingWay, gpu: Profile) -> None:
    """Run the programs on one GPU to their ends; their memory is not counted."""
    tenancy = shared.tenancy(len(runs) - 1, switch_of(gpu))
    assert isinstance(tenancy, Tenancy)
    memory = MemoryTurns(get("tenants", shared.memory), 1, [Claim(0)] * len(runs)) if shared.memory else None
    Coupled([run.simulation for run in runs], Connections(tenancy=tenancy), memory).advance(state.NEVER)
