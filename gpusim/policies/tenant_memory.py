"""What a policy of kind tenants sees and answers: which program has the GPU next, and whose memory leaves for it.

It is asked when the turn of the program that runs is over, when that has nothing to run, when another one has something to run
that had not, and when one has ended.  Memory moves in two ways: as bytes of a whole program, which come back before its next
turn (`leave`), or tensor by tensor, below a limit with which the program goes on (`limits`).  A built-in is one file
`policies/tenants/<name>.py` with

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
    limit    bytes that it may have: the claim, or what the policy has said last
    least    bytes of its largest operator, below which no limit may be
    lasting  bytes that it has between two of its iterations; it has no more after a turn that ended with one
    had      ns of turns so far
    lost     ns for which it had something to run, and no turn
    """

    number: int
    claim: int
    there: int
    away: int
    ready: bool
    waited: int
    limit: int = 0
    least: int = 0
    lasting: int = 0
    had: int = 0
    lost: int = 0


@dataclass(frozen=True)
class TenantTurn:
    """The next turn: whose, and for how many ns at most.

    leave       bytes of other programs that are copied to the host before
    limits      bytes that programs may have from now on; what is above leaves before the turn begins, by their evict policies
    iterations  so many end the turn, too; 0: as many as there are
    """

    tenant: int
    ns: float
    leave: Mapping[int, int] = field(default_factory=dict)
    limits: Mapping[int, int] = field(default_factory=dict)
    iterations: int = 0


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

    def in_order(self) -> dict[int, int]:
        """Limits by which each program that has come has what it claims of what those before it leave; none of too little.

        One that is there keeps room for its largest operator, whatever those before it claim.
        """
        left, found = self.capacity - sum(one.least for one in self.tenants if one.there), dict[int, int]()
        for one in (one for one in self.tenants if one.ready or one.there):
            left += one.least if one.there else 0
            limit = min(one.claim, left)
            if limit >= one.least:
                found[one.number] = limit
                left -= limit
        return found

    def room(self, tenant: TenantSeen, among: Iterable[TenantSeen], *, whole: bool = False) -> dict[int, int] | None:
        """Bytes that leave so that the program fits, of these others in this order; None where they do not suffice.

        whole  a program leaves with all that it has there
        """
        missing, leave = tenant.limit - tenant.there - self.free, dict[int, int]()
        for other in among:
            if missing > 0 and other.number != tenant.number and other.there:
                leave[other.number] = other.there if whole else min(other.there, missing)
                missing -= leave[other.number]
        return leave if missing <= 0 else None
