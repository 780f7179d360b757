"""The numbers of a profile that the island uses."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

from gpusim.machine import tiers
from gpusim.machine.profile import Profile
from gpusim.machine.tiers import Tier
from gpusim.trace.submission import EAGER, GRAPH, submission
from gpusim.trace.trace import Trace


@dataclass(frozen=True)
class Machine:
    """One GPU and what lies below its memory.  Rates in bytes/ns, times in ns, sizes in bytes."""

    capacity: int
    tiers: tuple[Tier, ...]  # at least one
    chain: str  # how the tiers were written
    h2d: float
    d2h: float
    both: float
    latency: int
    wait: int  # what a copy costs more when the host waits for it
    curve: tuple[tuple[float, float], ...]  # by size: copies to the device,
    curve_out: tuple[tuple[float, float], ...]  # to the host,
    curve_collective: tuple[tuple[float, float], ...]  # and collectives
    peer: float | None  # None: GPUs meet over the link to the host
    peer_latency: int
    collective: float
    collective_latency: int
    host: float  # what all that uses host memory at once has of it: the CPU's work, and copies over the link
    nvme_read: float
    nvme_write: float
    nvme_latency: int
    copies_in: int  # copies to the device at once by its copy engines,
    copies_out: int  # and from it
    submit: int  # the host's time for a launch of the memory manager's own
    operator: int  # and for one of the program's operators
    gap: int
    queue: int
    cached: int
    malloc: int
    malloc_per_byte: float
    free: int
    free_per_byte: float
    move_per_byte: float  # ns: a copy within the device's memory, which reads and writes each byte

    @property
    def host_capacity(self) -> int:
        """Bytes of host memory for swaps."""
        return sum(tier.capacity for tier in self.tiers if tier.kind == "host")

    @property
    def near(self) -> float:
        """Share of the link's rates that the program's own copies keep: its memory is where that of the first host tier is."""
        return next((tier.near for tier in self.tiers if tier.kind == "host"), 1.0)

    @property
    def cpu(self) -> float:
        """The same of the rate of the CPU's work."""
        return next((tier.cpu for tier in self.tiers if tier.kind == "host"), 1.0)

    @property
    def slots_in(self) -> int:
        """Swaps to the device at once, of the nearest tier."""
        return self.tiers[0].slots_in

    @property
    def slots_out(self) -> int:
        """Swaps from the device at once, to the nearest tier."""
        return self.tiers[0].slots_out

    def without(self, own: int) -> Machine:
        """The machine when the program itself keeps `own` bytes in host memory: less room for swaps, the nearest first."""
        left = []
        for tier in self.tiers:
            taken = min(own, tier.capacity) if tier.kind == "host" else 0
            own -= taken
            left.append(replace(tier, capacity=tier.capacity - taken))
        return replace(self, tiers=tuple(left))


class HostTime(NamedTuple):
    """ns that the host needs to submit an operator of the program, and between which times that is."""

    ns: float
    low: float
    high: float


NO_TIME = HostTime(0.0, 0.0, 0.0)


def host_time(trace: Trace, profile: Profile) -> HostTime:
    """A launch; what an eager framework takes where that is longer; nothing for one of many in a graph."""
    how, launch = submission(trace), profile.launch
    if how == GRAPH:
        return NO_TIME
    chosen = launch.eager if how == EAGER and launch.eager.value > launch.submit.value else launch.submit
    bars = (chosen.value if bar is None else bar for bar in (chosen.low, chosen.high))
    return HostTime(chosen.value, *bars)


def machine(
    trace: Trace, profile: Profile, capacity: int | None, chain: str = tiers.DEFAULT, made: tuple[Tier, ...] = ()
) -> Machine:
    """The machine as it runs this program, which says how its operators are submitted.

    `capacity`: bytes that the allocator may hold; None: what the CUDA context leaves of the device's memory.
    `made`: the tiers of the chain where other devices lend some of them (`topology.lenders`).

    On a machine whose GPU shares the CPU's memory there is by default nowhere to swap to: a tier of no bytes.
    """
    p, gib = profile, float(2**30)
    lone = p.peer.rate.value if p.peer else min(p.link.h2d.value, p.link.d2h.value, p.link.both.value / 2)
    start = p.peer.latency.value if p.peer else p.link.latency_queued.value
    into, out = tiers.copies_at_once(p)
    return Machine(
        tiers=made or tiers.parse(chain, p) or (tiers.nowhere(p),),
        chain=chain,
        capacity=int(p.memory.capacity.value - p.context.value) if capacity is None else int(capacity),
        h2d=p.link.h2d.value / 1e9,
        d2h=p.link.d2h.value / 1e9,
        both=p.link.both.value / 1e9,
        latency=round(p.link.latency_queued.value),
        wait=round(max(0.0, p.link.latency_synchronised.value - p.link.latency_queued.value - p.launch.submit.value)),
        peer=p.peer.rate.value / 1e9 if p.peer else None,
        peer_latency=round(start),
        collective=(p.collective.rate.value if p.collective else lone) / 1e9,
        collective_latency=round(p.collective.latency.value if p.collective else start),
        host=max(p.host.bandwidth.value, p.link.both.value) / 1e9,
        nvme_read=p.nvme.read.value / 1e9,
        nvme_write=p.nvme.write.value / 1e9,
        nvme_latency=round(p.nvme.latency.value),
        copies_in=into,
        copies_out=out,
        curve=tiers.per_ns(p.link.size_curve),
        curve_out=tiers.per_ns(p.link.size_curve_d2h or p.link.size_curve),
        curve_collective=tiers.per_ns(p.collective.size_curve if p.collective else ()),
        submit=round(p.launch.submit.value),
        operator=round(host_time(trace, profile).ns),
        gap=round(p.launch.gap.value),
        queue=int(p.launch.queue.value),
        cached=round(p.allocation.cached_alloc.value),
        malloc=round(p.allocation.malloc.value),
        malloc_per_byte=p.allocation.malloc_per_gib.value / gib,
        free=round(p.allocation.free.value),
        free_per_byte=p.allocation.free_per_gib.value / gib,
        move_per_byte=2e9 / p.memory.copy.value,
    )
