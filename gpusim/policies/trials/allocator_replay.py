"""One program through one allocator: what was held, what was refused, and what the heap looked like."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from gpusim.base.tables import table
from gpusim.policies.contract import MAX_CALLS
from gpusim.policies.forms import PlacePolicy
from gpusim.policies.place.parts import driver_memory as device
from gpusim.policies.trials import requests as core
from gpusim.policies.trials.allocator_requests import AllocatorRequests
from gpusim.policies.verb_table import addresses
from gpusim.results.log import LOG

ENDLESS = 1 << 45  # bytes of a device that never refuses
SAMPLES = 2048
LOG_ROOM = 1 << 15


@dataclass(frozen=True, eq=False)
class AllocatorReplay:
    """What one allocator made of a program.

    name      the allocator, with the parameters that are not its defaults
    capacity  bytes that it might hold
    counts    name -> number, as in core.requests.COUNTS
    samples   core.requests.SAMPLE, one row per `bucket` requests: highest values, and how it ended
    log       event log (core.log.LOG) whose time is the number of the request; None when it was not kept
    S         the policy's table at the end; None for a recording
    """

    name: str
    program: AllocatorRequests
    capacity: int
    counts: dict[str, int]
    samples: Any
    log: Any = None
    S: Any = None
    policy: PlacePolicy | None = None

    @property
    def held_peak(self) -> int:
        """Most bytes taken from the device at once ("reserved")."""
        return self.counts["held_peak"]

    @property
    def fits(self) -> bool:
        """No request was refused."""
        return self.counts["refused"] == 0

    @cached_property
    def utilisation(self) -> float:
        """Peak of the bytes requested / peak of the bytes held, the "memory efficiency" of GMLake and STAlloc."""
        return self.counts["requested_peak"] / self.held_peak if self.held_peak else 1.0


def replay(
    program: AllocatorRequests, policy: PlacePolicy, capacity: int = ENDLESS, *, log: bool = False,
    recorded: Sequence[tuple[int, int]] = (), progress: Callable[[int], object] = lambda done: None,
) -> AllocatorReplay:  # fmt: skip
    """Run a program through an allocator that may hold `capacity` bytes.

    Requests that are refused are counted, and the program goes on without them.
    log       keep the event log: about three records of 48 bytes per request
    progress  called with the number of requests carried out, after each piece of the program
    recorded  (address, bytes) of the segments that the device below answers with, in this order (place/parts/driver_memory.py)
    """
    S = policy.table(capacity, program.units, program.max_live, program.columns)
    if recorded:
        S = device.follow(S, list(recorded))
    room = LOG_ROOM + int(S[MAX_CALLS]) + 4
    placed, counts = table(max(program.units, 1), core.PLACED), table(1, core.COUNTS)
    placed["addr"], counts["refused_at"] = -1, -1
    counts["bucket"] = bucket(program.total)
    samples = table(program.total // int(counts["bucket"][0]) + 1, core.SAMPLE)
    rows = table(room if log else 0, LOG)
    verbs = addresses(core.PlaceVerbs(**{name: getattr(policy, name) for name in core.PlaceVerbs._fields}))
    kept = []
    for piece in program.pieces():
        first = 0
        while first >= 0:
            first = core.run(piece, first, S, placed, counts, samples, rows, verbs)
            if log:
                kept.append(rows[: counts["logged"][0]].copy())
                counts["logged"] = 0
        progress(int(counts["requests"][0]))
    taken = {name: int(counts[name][0]) for name in core.COUNTS.names or ()}
    records = np.concatenate([np.zeros(0, LOG), *kept]) if log else None
    shown = samples[: -(-program.total // taken["bucket"])]
    return AllocatorReplay(policy.spec, program, capacity, taken, shown, records, S, policy)


def bucket(total: int) -> int:
    """Requests per sample."""
    return max(1, -(-total // SAMPLES))
