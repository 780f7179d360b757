"""Serving an eviction policy in plain Python: events go to it in batches, victims come back in batches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gpusim.core.residency import LOCKED, RESIDENTS, VICTIMS
from gpusim.errors import PolicyError

if TYPE_CHECKING:
    from gpusim.engine.simulate import Simulation


class Asking:
    """One plain-Python policy at work in one simulation."""

    def __init__(self, simulation: Simulation, seed: int) -> None:
        self.simulation = simulation
        self.policy = simulation.evict
        self.ask = self.policy.new_ask()
        self.ask.start(len(simulation.island.units), simulation.machine.capacity, seed)

    def tell(self) -> None:
        """Hand over what happened since the last time."""
        c, notes = self.simulation.island.control[0], self.simulation.policies.notes
        n = int(c["notes"])
        if n:
            part = notes[:n]
            self.ask.events(part["kind"].copy(), part["unit"].copy(), part["size"].copy())
            c["notes"] = 0

    def answer(self) -> bool:
        """Ask for victims; False when the policy has none, which is out of memory."""
        self.tell()
        island = self.simulation.island
        c, units = island.control[0], island.units
        resident = island.lists[RESIDENTS, : int(c["residents"])]
        locked = island.flags[LOCKED]
        candidates = np.sort(resident[locked[resident] == 0])
        if not len(candidates):
            return False
        facts = self.facts(candidates)
        victims = self.ask.victims(int(c["request_bytes"]), locked, units["size"], candidates, facts)
        for u in victims:
            if not 0 <= u < len(units) or units["slot"][u] < 0 or locked[u]:
                raise PolicyError(f"policy '{self.policy.name}' chose unit {u}, which may not leave", self.policy.entry.where)
        island.lists[VICTIMS, : len(victims)] = victims
        c["asked"], c["asked_at"] = len(victims), 0
        return bool(victims)

    def facts(self, candidates: Any) -> dict[str, Any]:
        """Whole columns of the facts that the policy reads, one row per candidate; see contract.FACTS."""
        island, wanted = self.simulation.island, self.ask.facts
        c = island.control[0]
        if not wanted:
            return {}
        unit = island.units[candidates]
        queue = island.queues
        q_in, q_out = queue[int(c["q_in"])], queue[int(c["q_out"])]
        dirty = (unit["host_copy"] == 0).astype(np.float64)
        columns = {
            "size": lambda: unit["size"].astype(np.float64),
            "last_use": lambda: unit["last"],
            "next_use": lambda: unit["next"],
            "uses": lambda: unit["uses"].astype(np.float64),
            "reload_ns": lambda: q_in["latency"] + unit["size"] / q_in["rate"],
            "evict_ns": lambda: dirty * (q_out["latency"] + unit["size"] / q_out["rate"]),
            "dirty": lambda: dirty,
            "arrived": lambda: unit["arrived"],
            "born": lambda: unit["born"],
            "now": lambda: np.full(len(unit), c["program"]),
        }
        return {name: columns[name]() for name in wanted}
