"""What lies between the devices of a machine for the programs that run on them: shared links, and where programs meet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from gpusim.machine.tenancy import Tenancy
from gpusim.machine.tiers import Tier
from gpusim.machine.topology.sharing import SharedLink


@dataclass(frozen=True)
class Meeting:
    """Operators of several programs that start together and end together: a collective, or a send and its receive.

    members  (program, operator) of each; none: bytes of others, which flow beside the programs
    latency  ns from the last start to the first byte; without members from the beginning
    size     bytes along the route, all of its links at one rate
    rate     bytes/ns, at most
    route    the links; one that the bytes pass twice stands there twice
    name     for people: "all_reduce of 1000 bytes"
    blocks   multiprocessors that a collective takes from each device from its own start on
    """

    members: tuple[tuple[int, int], ...]
    latency: int
    size: float
    rate: float
    route: tuple[SharedLink, ...]
    name: str = ""
    blocks: int = 0


@dataclass(frozen=True)
class Lender:
    """A memory of the machine that programs on other devices may use.

    capacity  bytes of it; of a device with a program what its allocator may hold, which is not said here
    lends     bytes that others have of it together, at most
    program   the number of the program on that device, whose own bytes come first; -1: there is none
    """

    capacity: int
    lends: int
    program: int = -1


@dataclass(frozen=True)
class Connections:
    """What lies between the devices of a machine.

    rates     of the shared links by name, bytes/ns
    beyond    of each program: name of one of its own links -> the shared ones that its bytes pass as well
    meetings  where operators of several programs meet
    tiers     of each program: the memories below its device, where some of them are lent
    lenders   name of each memory that is lent -> how much of it, and whose device it is
    tenancy   how all programs have one device together; None: each has its own
    """

    rates: Mapping[str, float] = field(default_factory=dict)
    beyond: Sequence[Mapping[str, tuple[SharedLink, ...]]] = ()
    meetings: Sequence[Meeting] = ()
    tiers: Sequence[tuple[Tier, ...]] = ()
    lenders: Mapping[str, Lender] = field(default_factory=dict)
    tenancy: Tenancy | None = None
