"""Programs whose memory one GPU does not hold at once: a policy says whose turn is next, and whose bytes leave for it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from gpusim.base.errors import GpusimError
from gpusim.base.units import show_bytes
from gpusim.engine.fabric.tables import WANTS, Fabric
from gpusim.engine.run.claims import Claim
from gpusim.engine.run.turn_records import TurnRecords
from gpusim.engine.state import NEVER
from gpusim.policies.tenant_memory import TenantSeen, TenantsView, TenantTurn

if TYPE_CHECKING:
    from gpusim.engine.run.simulate import Simulation
    from gpusim.engine.state import Processes
    from gpusim.policies.forms import TenantsPolicy


class MemoryTurns:
    """What each program has on the GPU and on the host, and the policy that decides.

    capacity  bytes for all programs
    claims    of each program what it needs, bytes

    Raises GpusimError where one of them cannot run in what there is.
    """

    def __init__(self, policy: TenantsPolicy, capacity: int, claims: Sequence[Claim | int]) -> None:
        self.claims = [one if isinstance(one, Claim) else Claim(one, one, one) for one in claims]
        for number, claim in enumerate(self.claims):
            if claim.least > capacity:
                needs = f"program {number} needs {show_bytes(claim.least)}"
                raise GpusimError(
                    f"{needs}, and the GPU has {show_bytes(capacity)} beside the contexts",
                    hint="that is its largest operator: give the run a larger GPU",
                )
        self.policy, self.capacity = policy, capacity
        self.limits = [claim.most for claim in self.claims]
        self.there, self.away, self.last, self.had, self.lost = ([0] * len(claims) for _ in range(5))
        self.copied, self.moves = 0, 0
        """Bytes that left or came back, and how often a program's memory did."""
        self._asked, self._ready = 0, [False] * len(claims)
        self.records = TurnRecords(len(claims))

    def decide(self, fabric: Fabric, processes: Processes, simulations: Sequence[Simulation]) -> None:
        """Ask the policy, and have the engine do what it says."""
        gpu, now = fabric.gpu[0], int(processes.turn[0]["now"])
        gpu["asking"] = 0
        self.records.began(fabric.seats["began"])
        ended, running = processes.rows["ended"], int(gpu["turn"])
        self._count(fabric, running, now)
        ends = self._at_end_of_iteration(fabric, simulations, running)
        if ends:
            self.there[running] = min(self.there[running], self.claims[running].lasting)
        view = TenantsView(now, self.capacity, running, bool(gpu["over"]) or ends, tuple(
            TenantSeen(
                p, self.claims[p].most, self.there[p], self.away[p], fabric.seats[p]["wanted"] == WANTS,
                0 if p == running else now - self.last[p], self.limits[p], self.claims[p].least, self.claims[p].lasting,
                self.had[p], self.lost[p],
            )
            for p in range(len(self.claims)) if not ended[p]
        ))  # fmt: skip
        made = self.policy.turn(view)
        if made is None:
            if ends:
                self.there[running] = self.limits[running]
            return
        if running >= 0 and running != made.tenant:
            self.last[running] = now
        self._move(fabric, made)
        seat = fabric.seats[made.tenant]
        seat["slice"] = min(round(made.ns), NEVER // 2)
        seat["stop"] = self._stop(simulations[made.tenant], made) if made.iterations else 0
        moves = bool(made.leave) or seat["come"] > 0
        self.records.gave(now, made, int(seat["slice"]), int(seat["stop"]), moves=moves)
        gpu["ordered"] = 1 + made.tenant

    def _count(self, fabric: Fabric, running: int, now: int) -> None:
        """What each has had of the GPU since the policy was asked last, and what it lacked while it had something to run."""
        for p, ready in enumerate(self._ready):
            since = min(now, max(self._asked, int(fabric.seats[p]["began"]))) if p == running else now
            self.had[p] += now - since
            self.lost[p] += since - self._asked if ready else 0
            self._ready[p] = fabric.seats[p]["wanted"] == WANTS
        self._asked = now

    def _at_end_of_iteration(self, fabric: Fabric, simulations: Sequence[Simulation], running: int) -> bool:
        """The turn has ended with the iteration for which it was given."""
        if running < 0 or not fabric.seats[running]["stop"]:
            return False
        return _last_begun(simulations[running]) >= int(fabric.seats[running]["stop"])

    def _stop(self, simulation: Simulation, made: TenantTurn) -> int:
        """The operator with which the iterations of a turn are over; 0: the program's last iteration is among them."""
        starts = self.claims[made.tenant].starts
        at = bisect_right(starts, max(0, _last_begun(simulation))) - 1 + made.iterations
        return starts[at] if at < len(starts) else 0

    def _move(self, fabric: Fabric, made: TenantTurn) -> None:
        for number, size in made.leave.items():
            self.there[number] -= size
            self.away[number] += size
            fabric.seats[number]["leave"] = size
        for number, limit in made.limits.items():
            if limit != self.limits[number]:
                fabric.seats[number]["limit"] = limit
                self.limits[number], self.there[number] = limit, min(self.there[number], limit)
        to = made.tenant
        fabric.seats[to]["come"] = self.away[to]
        self.copied += sum(made.leave.values()) + self.away[to]
        self.moves += len(made.leave) + (self.away[to] > 0)
        self.there[to], self.away[to] = self.limits[to], 0

    def standstill(self, processes: Any) -> str:
        """Programs that wait for a turn which does not come, as a sentence."""
        waiting = [p for p, ended in enumerate(processes.rows["ended"]) if not ended]
        each = "; ".join(
            f"program {p} needs {show_bytes(self.limits[p])}, and has {show_bytes(self.there[p])} on the GPU" for p in waiting
        )
        free = self.capacity - sum(self.there[p] for p in waiting)
        return f"policy '{self.policy.name}' lets the programs wait for memory for ever, with {show_bytes(free)} free: {each}"


def _last_begun(simulation: Simulation) -> int:
    """The last operator that has begun on the device, -1 before any."""
    begun = np.flatnonzero(simulation.island.began < NEVER)
    return int(begun[-1]) if len(begun) else -1
