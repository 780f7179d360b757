"""Programs on devices that lend each other memory: written down by hand, and random ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from coupled_programs import MACHINES, Together, program_of, with_meetings
from hand_worked import BLOCK, Steps, machine

from gpusim.engine import state
from gpusim.engine.run.coupled import Coupled
from gpusim.engine.run.simulate import prepared
from gpusim.machine import catalogue
from gpusim.machine.profile import Profile
from gpusim.machine.tiers import Fall, Tier, TierLink, parse
from gpusim.machine.topology.connections import Connections, Lender, Meeting
from gpusim.machine.topology.sharing import SharedLink
from gpusim.referee.bounds import most_alive
from gpusim.trace.trace import Trace

CHAIN = "peer(any) > host"
RATE, LATENCY = 100.0, 500  # bytes/ns and ns between two devices: 102.4 ns for a block
CHOICES = (
    {"place": "first_fit", "evict": "lru", "prefetch": "next_k"}, {"place": "pytorch", "evict": "belady", "prefetch": "oracle"},
    {"place": "device", "evict": "cost_aware"}, {"place": "best_fit", "evict": "random"}, {"place": "tlsf", "evict": "arc"},
    {"place": "device", "release": "watermark", "prefetch": "next_k"}, {"place": "best_fit", "grain": 2 << 20},
)  # fmt: skip
POOLS = ("none", "local_first", "least_loaded", "least_loaded(reserve=0.2)", "interleave", "by_topology", "oracle")


def lender(name: str, far: bool = False) -> Tier:
    """The memory of a device, as others have it below theirs."""
    back, there = TierLink(f"peer_in {name}", RATE), TierLink(f"peer_out {name}", RATE)
    fall = Fall("host", 8.0, 1000, (TierLink(f"from {name} to host", 8.0),))
    return Tier(
        f"peer {name}", "peer", 1 << 50, RATE, RATE, LATENCY, LATENCY, (back,), (there,), f"peer {name}", 1, 1, lender=name,
        falls=(fall,), far=far,
    )  # fmt: skip


def lending(
    profiles: Sequence[Profile], idle: Sequence[int] = (), meetings: Sequence[Meeting] = (), host: int = 0
) -> Connections:
    """Devices "0", "1", ... with a program each, then idle ones of so many bytes; all lend to all, over links of pairs."""
    names = [str(p) for p in range(len(profiles) + len(idle))]
    rates = {f"{a}>{b}": RATE for a in names for b in names if a != b}
    tiers, beyond = [], []
    for p, profile in enumerate(profiles):
        (own,) = parse("host", profile)
        others = [name for name in names if name != str(p)]
        tiers.append((*(lender(name) for name in others), replace(own, place=2, **({"capacity": host} if host else {}))))
        ways: dict[str, tuple[SharedLink, ...]] = {}
        for name in others:
            ways |= {f"peer_out {name}": (f"{p}>{name}",), f"peer_in {name}": (f"{name}>{p}",)}
            if int(name) < len(profiles):
                ways |= {f"from {name} to host": ((int(name), "d2h"), (int(name), "both"))}
        beyond.append(ways)
    lenders = {name: Lender(1 << 50, 1 << 50, p) for p, name in enumerate(names[: len(profiles)])}
    lenders |= {name: Lender(size, size) for name, size in zip(names[len(profiles) :], idle, strict=True)}
    return Connections(rates, beyond, meetings, tiers, lenders)


def lent(
    *each: Steps, blocks: Sequence[float], idle: Sequence[float] = (), meetings: Sequence[Meeting] = (), host: float = 0,
    **choices: Any,
) -> Together:  # fmt: skip
    """Programs written down by hand on devices of so many blocks, and idle devices of so many."""
    profiles = [machine()] * len(each)
    between = lending(profiles, [int(size * BLOCK) for size in idle], meetings, int(host * BLOCK))
    chosen = [{"place": "first_fit", "capacity_bytes": int(size * BLOCK), **choices} for size in blocks]
    return ran([steps.trace() for steps in each], profiles, between, chosen)


def drawn_lenders(seed: int) -> Together:
    """Random programs, of which some have more memory than they need and others less, and idle devices beside them."""
    rng = np.random.default_rng(seed)
    count = int(rng.integers(2, 5))
    traces, meetings = with_meetings([program_of(rng) for _ in range(count)], int(rng.integers(1, 25)), rng)
    profiles = [catalogue.load(str(rng.choice(MACHINES))) for _ in traces]
    idle = [int(rng.integers(1, 200)) << 20 for _ in range(int(rng.integers(0, 3)))]
    meetings = [replace(meeting, route=(f"{int(rng.integers(count))}>h",)) for meeting in meetings]
    between = lending(profiles, idle, meetings, int(rng.choice([0, 64 << 20])))
    between = replace(between, rates={**between.rates, **{f"{p}>h": 20.0 for p in range(count)}})
    pool = str(rng.choice(POOLS))
    return ran(traces, profiles, between, [{"seed": seed, "pool": pool, **_chosen(trace, rng)} for trace in traces])


def ran(traces: list[Trace], profiles: list[Profile], between: Connections, choices: Sequence[dict[str, Any]]) -> Together:
    """Programs that have run on one machine."""
    runs = [
        prepared(trace, profile, log=True, tiers=CHAIN, below=between.tiers[p], **chosen)
        for p, (trace, profile, chosen) in enumerate(zip(traces, profiles, choices, strict=True))
    ]
    Coupled([run.simulation for run in runs], between).advance(state.NEVER)
    return Together([run.result() for run in runs], traces, profiles, between)


def _chosen(trace: Trace, rng: Any) -> dict[str, Any]:
    capacity = int(most_alive(trace, trace.size) * rng.choice([0.5, 0.7, 1.0, 1.5, 3.0])) + (20 << 20)
    return {"capacity_bytes": capacity, **CHOICES[int(rng.integers(len(CHOICES)))]}
