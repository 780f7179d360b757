"""Programs whose memory one GPU does not hold at once: a policy says whose turn is next, and whose bytes leave for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from gpusim.base.errors import GpusimError
from gpusim.base.units import show_bytes
from gpusim.engine.fabric.tables import Fabric
from gpusim.policies.tenant_memory import TenantSeen, TenantsView

if TYPE_CHECKING:
    from gpusim.engine.state import Processes
    from gpusim.policies.forms import TenantsPolicy


class MemoryTurns:
    """What each program has on the GPU and on the host, and the policy that decides.

    capacity  bytes for all programs
    claims    of each program what it needs while it runs, bytes

    Raises GpusimError where one of them needs more than there is.
    """

    def __init__(self, policy: TenantsPolicy, capacity: int, claims: Sequence[int]) -> None:
        for number, claim in enumerate(claims):
            if claim > capacity:
                raise GpusimError(
                    f"program {number} needs {show_bytes(claim)}, and the GPU has {show_bytes(capacity)} beside the contexts",
                    hint="whole programs are swapped: give this one less memory, or the run a larger GPU",
                )  # fmt: skip
        self.policy, self.capacity, self.claims = policy, capacity, list(claims)
        self.there, self.away, self.last = ([0] * len(claims) for _ in range(3))
        self.copied, self.moves = 0, 0
        """Bytes that left or came back, and how often a program's memory did."""

    def decide(self, fabric: Fabric, processes: Processes) -> None:
        """Ask the policy, and have the engine do what it says."""
        gpu, now = fabric.gpu[0], int(processes.turn[0]["now"])
        gpu["asking"] = 0
        ended = processes.rows["ended"]
        running = int(gpu["turn"])
        view = TenantsView(now, self.capacity, running, bool(gpu["over"]), tuple(
            TenantSeen(
                p, self.claims[p], self.there[p], self.away[p], bool(fabric.seats[p]["wanted"]),
                0 if p == running else now - self.last[p],
            )
            for p in range(len(self.claims)) if not ended[p]
        ))  # fmt: skip
        made = self.policy.turn(view)
        if made is None:
            return
        if running >= 0 and running != made.tenant:
            self.last[running] = now
        for number, size in made.leave.items():
            self.there[number] -= size
            self.away[number] += size
            fabric.seats[number]["leave"] = size
        fabric.seats[made.tenant]["come"], fabric.seats[made.tenant]["slice"] = self.away[made.tenant], round(made.ns)
        self.copied += sum(made.leave.values()) + self.away[made.tenant]
        self.moves += len(made.leave) + (self.away[made.tenant] > 0)
        self.there[made.tenant], self.away[made.tenant] = self.claims[made.tenant], 0
        gpu["ordered"] = 1 + made.tenant

    def standstill(self, processes: Any) -> str:
        """Programs that wait for a turn which does not come, as a sentence."""
        waiting = [p for p, ended in enumerate(processes.rows["ended"]) if not ended]
        each = "; ".join(
            f"program {p} needs {show_bytes(self.claims[p])}, and has {show_bytes(self.there[p])} on the GPU" for p in waiting
        )
        free = self.capacity - sum(self.there[p] for p in waiting)
        return f"policy '{self.policy.name}' lets the programs wait for memory for ever, with {show_bytes(free)} free: {each}"
