"""Programs that have one device together take their seats there, before the first step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from gpusim.base.errors import GpusimError
from gpusim.engine.fabric.tables import Fabric
from gpusim.engine.state import AT_ONCE, BY_TURNS
from gpusim.machine.sharing import SMS
from gpusim.machine.tenancy import SLICES, YIELDS, Tenancy, runlist

if TYPE_CHECKING:
    from gpusim.engine.run.simulate import Simulation


def take(fabric: Fabric, simulations: Sequence[Simulation], tenancy: Tenancy, *, asks: bool = False) -> Fabric:
    """The fabric with the device that all programs have; asks: a policy says whose turn is next.

    Raises GpusimError where they do not share its multiprocessors.
    """
    if len(tenancy.tenants) != len(simulations):
        raise GpusimError(f"{len(simulations)} programs have {len(tenancy.tenants)} seats on one GPU")
    by_turns = tenancy.way == SLICES
    for number, simulation in enumerate(simulations):
        if SMS not in simulation.shared.words:
            said = f"program {number} shares its GPU with others, but not its multiprocessors"
            raise GpusimError(said, hint="share: [sms, memory]")
        simulation.island.devices["shares_sms"] = 1
        simulation.island.tenants["beside"] = BY_TURNS if by_turns else AT_ONCE
        simulation.island.tenants["part"] = 0.0 if by_turns else 1.0
    gpu = fabric.gpu
    gpu["mode"], gpu["turn"] = BY_TURNS if by_turns else AT_ONCE, -1
    gpu["fixed"], gpu["of_a_processor"] = tenancy.switch.fixed, tenancy.switch.of_a_processor
    for seat, tenant in zip(fabric.seats, tenancy.tenants, strict=True):
        seat["slice"], seat["priority"], seat["part"] = tenant.slice, tenant.priority, 0.0 if by_turns else 1.0
    gpu["keeps"], gpu["apart"], gpu["asks"] = YIELDS.index(tenancy.yields), tenancy.apart, asks
    if asks:  # turns are named by their programs
        return fabric._replace(turns=np.arange(len(simulations)))
    return fabric._replace(turns=np.array(runlist([tenant.level for tenant in tenancy.tenants]), np.int64))
