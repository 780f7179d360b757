"""Programs on the devices of one machine, which share links of it and meet: written down by hand, and random ones."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from hand_worked import BLOCK, Steps, machine

from gpusim.engine import state
from gpusim.engine.run.coupled import Coupled
from gpusim.engine.run.simulate import prepared
from gpusim.machine import catalogue
from gpusim.machine.profile import Profile
from gpusim.machine.topology.connections import Connections, Meeting
from gpusim.programs.generate.synth import random_program
from gpusim.referee import ranks
from gpusim.referee.bounds import most_alive
from gpusim.referee.report import Report
from gpusim.results.result import Result
from gpusim.trace.trace import COLLECTIVE, COPY_IN, COPY_OUT, COPY_PEER, HOST_WORK, NVME_READ, Trace

MACHINES = ("a100-pcie-40gb", "a100-sxm4-80gb", "rtx-2080-ti", "l4")
CHOICES = (
    {"place": "first_fit", "evict": "lru", "prefetch": "next_k"}, {"place": "pytorch", "evict": "belady", "prefetch": "oracle"},
    {"place": "device", "evict": "cost_aware", "prefetch": "stride"}, {"place": "best_fit", "evict": "random"},
    {"place": "tlsf", "evict": "arc", "defrag": "slide"}, {"place": "first_fit", "evict": "fifo", "share": "none"},
    {"place": "buddy", "evict": "lru", "tiers": "host(capacity=100 MiB) > nvme"}, {"place": "pytorch", "plan": "zero_copy"},
    {"place": "device", "release": "watermark", "prefetch": "next_k"}, {"place": "best_fit", "grain": 2 << 20},
)  # fmt: skip
OTHERS = (COLLECTIVE, COPY_PEER, COPY_IN, COPY_OUT, HOST_WORK, NVME_READ)
SHARES = (0.5, 0.7, 0.9, 1.5)  # of what a program holds at once, what it has of memory


@dataclass(frozen=True)
class Together:
    """Programs that ran on one machine."""

    results: list[Result]
    traces: list[Trace]
    profiles: list[Profile]
    between: Connections

    def checked(self, **changes: Any) -> list[Report]:
        """What the referee says of them, or of them with other results or connections."""
        given = {"results": self.results, "between": self.between, **changes}
        return ranks.check(given["results"], self.traces, self.profiles, given["between"])


def played(between: Connections, *each: Steps, **choices: Any) -> Together:
    """Programs written down by hand, on the machine of `hand_worked`."""
    count = len(each)
    return _ran([steps.trace() for steps in each], [machine()] * count, between, [{"place": "device", **choices}] * count)


def copies(*carried: tuple[int, float]) -> Steps:
    """Copies (activity, blocks) on streams of their own."""
    steps = Steps()
    for stream, (activity, blocks) in enumerate(carried):
        steps.carry(activity, stream, blocks)
    return steps


def working(ns: int, *, beside: float = 0) -> Steps:
    """A kernel, then a collective of 10 blocks; blocks come in beside them on another stream."""
    steps = Steps()
    steps.kernel(ns)
    steps.carry(COLLECTIVE, 0, 10)
    if beside:
        steps.carry(COPY_IN, 1, beside)
    return steps


def meeting(**changes: Any) -> Meeting:
    """Of the second operators of two programs: 10 blocks at 10 bytes/ns along one link."""
    said = {"members": ((0, 1), (1, 1)), "latency": 500, "size": 10 * BLOCK, "rate": 10.0, "route": ("between",)}
    return Meeting(**(said | changes))


def drawn(seed: int) -> Together:
    """Programs of one to three streams under random policies; each copies over an uplink that it shares with others."""
    return _ran(*drawn_inputs(seed))


def drawn_inputs(seed: int) -> tuple[list[Trace], list[Profile], Connections, list[dict[str, Any]]]:
    """What `drawn` runs."""
    rng = np.random.default_rng(seed)
    count = int(rng.integers(2, 7))
    traces, meetings = with_meetings([program_of(rng) for _ in range(count)], int(rng.integers(1, 25)), rng)
    profiles = [catalogue.load(str(rng.choice(MACHINES))) for _ in traces]
    between = Connections({"up 0": 12.0, "up 1": 30.0, "fabric": 40.0}, [_beyond(rng) for _ in traces], meetings)
    return traces, profiles, between, [{"seed": seed, **_chosen(trace, rng)} for trace in traces]


def drawn_runs(seed: int) -> tuple[Coupled, list[Any]]:
    """Those of `drawn`, which have not begun."""
    made = drawn_inputs(seed)
    each = zip(made[0], made[1], made[3], strict=True)
    runs = [prepared(trace, profile, log=True, **chosen) for trace, profile, chosen in each]
    return Coupled([run.simulation for run in runs], made[2]), runs


def _ran(traces: list[Trace], profiles: list[Profile], between: Connections, choices: list[dict[str, Any]]) -> Together:
    each = zip(traces, profiles, choices, strict=True)
    runs = [prepared(trace, profile, log=True, **chosen) for trace, profile, chosen in each]
    Coupled([run.simulation for run in runs], between).advance(state.NEVER)
    return Together([run.result() for run in runs], traces, profiles, between)


def program_of(rng: Any) -> Trace:
    """A tenth of its operators are no kernels."""
    seed, ops, streams = int(rng.integers(1 << 30)), int(rng.integers(20, 120)), int(rng.integers(1, 4))
    trace = random_program(seed, ops, streams=streams, mean_life=20.0, largest=16 << 20)
    other = rng.random(trace.ops) < 0.1
    return replace(trace, activity=np.where(other, rng.choice(OTHERS, trace.ops), trace.activity).astype(np.uint8))


def with_meetings(traces: list[Trace], count: int, rng: Any) -> tuple[list[Trace], list[Meeting]]:
    """Operators of some programs each are collectives, in the same order in all programs."""
    meetings, last = [], [-1] * len(traces)
    activity = [trace.activity.copy() for trace in traces]
    for _ in range(count):
        size = int(rng.integers(2, len(traces) + 1))
        who = sorted(rng.choice(len(traces), size, replace=False).tolist())
        for p in who:
            last[p] += 1 + int(rng.integers(0, max(1, 2 * traces[p].ops // count)))
        if any(last[p] >= traces[p].ops for p in who):
            break
        for p in who:
            activity[p][last[p]] = COLLECTIVE if size > 2 else COPY_PEER
        links = ["fabric", f"up {int(rng.integers(2))}", *((p, str(rng.choice(["h2d", "d2h"]))) for p in who)]
        route = tuple(links[i] for i in rng.integers(0, len(links), int(rng.integers(1, 5))))
        members = tuple((p, last[p]) for p in who)
        latency, sent, rate = int(rng.integers(1, 20_000)), float(rng.choice([0, 1000, 1 << 20, 1 << 24])), rng.uniform(1, 60)
        meetings.append(Meeting(members, latency, sent, float(rate), route, blocks=int(rng.choice([0, 1, 4, 12]))))
    return [replace(trace, activity=of) for trace, of in zip(traces, activity, strict=True)], meetings


def _beyond(rng: Any) -> dict[str, tuple[str, ...]]:
    up = f"up {int(rng.integers(2))}"
    return {"h2d": (up,), "d2h": (up,), **({"peer": ("fabric",)} if rng.random() < 0.5 else {})}


def _chosen(trace: Trace, rng: Any) -> dict[str, Any]:
    capacity = int(most_alive(trace, trace.size) * rng.choice(SHARES)) + (20 << 20)
    return {"capacity_bytes": capacity, **CHOICES[int(rng.integers(len(CHOICES)))]}
