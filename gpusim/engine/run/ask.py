"""Serving an eviction policy in plain Python: events go to it in batches, victims come back in batches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gpusim.base.units import show_bytes
from gpusim.engine.state import LOCKED, RESIDENTS, VICTIMS

# Share of the memory that one answer is to free, at least.
BATCH = 1 / 16

# Facts that are a column of the units' table; the others follow from several (contract.FACTS).
COLUMNS = {
    "size": "size", "last_use": "last", "next_use": "next", "uses": "uses", "arrived": "arrived", "born": "born",
    "stage": "stage",
}  # fmt: skip

if TYPE_CHECKING:
    from gpusim.engine.run.simulate import Simulation


class Asking:
    """One plain-Python policy at work in one simulation."""

    def __init__(self, simulation: Simulation, seed: int) -> None:
        self.simulation = simulation
        self.policy = simulation.evict
        self.ask = self.policy.new_ask()
        self.sizes = simulation.island.units["size"].copy()
        simulation.policies.rules[0]["asks"] = self.ask.listens
        self.ask.start(len(simulation.island.units), simulation.machine.capacity, seed)

    def tell(self) -> None:
        """Hand over what happened since the last time."""
        buffers = self.simulation.policies.buffers[0]
        n = int(buffers["notes"])
        if n:
            notes = self.simulation.policies.notes[:n]
            self.ask.events(notes["kind"], notes["unit"], notes["size"])
            buffers["notes"] = 0

    def answer(self) -> bool:
        """Ask for victims; False when nothing may leave, which is out of memory.

        The policy is asked for more than the request (BATCH of the memory), so that it is asked seldom; what the island
        does not need now it takes later, unless the unit has been used in between.
        """
        self.tell()
        island = self.simulation.island
        t, rules = island.tenants[0], self.simulation.policies.rules[0]
        resident = island.lists[RESIDENTS, : int(t["residents"])]
        locked = island.flags[LOCKED]
        candidates = np.sort(resident[locked[resident] == 0])
        if not len(candidates):
            return False
        need = max(int(t["request_bytes"]), int(self.simulation.machine.capacity * BATCH))
        victims = self.ask.victims(need, locked, self.sizes, candidates, self.facts(candidates))
        if not victims:
            request = show_bytes(int(t["request_bytes"]))
            raise self.policy.error(f"named no victim for {request} although {len(candidates)} units may leave")
        island.lists[VICTIMS, : len(victims)] = victims
        rules["asked"], rules["asked_at"], rules["asked_time"] = len(victims), 0, t["program"]
        return True

    def facts(self, candidates: Any) -> dict[str, Any]:
        """Whole columns of the facts that the policy reads, one row per candidate; see contract.FACTS."""
        return {name: self._fact(name, candidates) for name in self.ask.facts}

    def _fact(self, name: str, candidates: Any) -> Any:
        island = self.simulation.island
        units = island.units
        if name in COLUMNS:
            return units[COLUMNS[name]][candidates].astype(np.float64)
        if name == "now":
            return np.full(len(candidates), island.tenants[0]["program"])
        tier = units["tier"][candidates]
        dirty = (tier == 0).astype(np.float64)
        if name == "dirty":
            return dirty
        way = island.ways[island.memories["way_in" if name == "reload_ns" else "way_out"][np.maximum(tier, 1)]]
        time = way["latency"] + units["wire"][candidates] / way["rate"]
        return time if name == "reload_ns" else dirty * time
