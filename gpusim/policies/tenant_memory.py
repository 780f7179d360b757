"""What a policy of kind tenants sees and answers: which program has the GPU next, and whose memory leaves for it.

It is asked when the turn of the program that runs is over, when that has nothing to run, and when another one has something
to run that had not.  A built-in is one file `policies/tenants/<name>.py` with

    name(view, **parameters) -> TenantTurn | None      None: it stays as it is
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class TenantSeen:
    """A program that has not ended.

    number   as programs are listed; the run's own is 0
    claim    bytes that it needs on the GPU while it runs: the most that its allocator holds when it is alone
    there    of them what is on the GPU; nothing before its first turn
    away     bytes on the host, which come back before it runs
    ready    it has something to run
    waited   ns since its last turn ended, or since it came; 0 while it has its turn
    """

    number: int
    claim: int
    there: int
    away: int
    ready: bool
    waited: int


@dataclass(frozen=True)
class TenantTurn:
    """The next turn: whose, for how many ns at most, and bytes of other programs that are copied to the host before."""

    tenant: int
    ns: float
    leave: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True)
class TenantsView:
    """now: ns; capacity: bytes for all; running: whose turn it is, -1 for none; over: that turn has lasted its time."""

    now: int
    capacity: int
    running: int
    over: bool
    tenants: tuple[TenantSeen, ...]

    @property
    def free(self) -> int:
        """Bytes that no program has."""
        return self.capacity - sum(one.there for one in self.tenants)

    def of(self, number: int) -> TenantSeen | None:
        """The program of this number; None when it has ended."""
        return next((one for one in self.tenants if one.number == number), None)

    def in_turn(self) -> list[TenantSeen]:
        """Those with something to run, by number from behind the one that runs on, itself at last."""
        ready = [one for one in self.tenants if one.ready]
        return sorted(ready, key=lambda one: (one.number <= self.running, one.number))

    def goes_on(self) -> bool:
        """The program whose turn it is has something to run, and time left."""
        now = self.of(self.running)
        return now is not None and now.ready and not self.over

    def room(self, tenant: TenantSeen, among: Iterable[TenantSeen], *, whole: bool = False) -> dict[int, int] | None:
        """Bytes that leave so that the program fits, of these others in this order; None where they do not suffice.

        whole  a program leaves with all that it has there
        """
        missing, leave = tenant.claim - tenant.there - self.free, dict[int, int]()
        for other in among:
            if missing > 0 and other.number != tenant.number and other.there:
                leave[other.number] = other.there if whole else min(other.there, missing)
                missing -= leave[other.number]
        return leave if missing <= 0 else None
