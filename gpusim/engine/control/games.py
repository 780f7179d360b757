"""Decisions about whole rounds: the batch of a training, the share of a GPU that two programs have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from gpusim.base.errors import GpusimError
from gpusim.engine.control.controller import Controller
from gpusim.engine.control.training import begun
from gpusim.engine.run.tenants import Program, capacities, progress, simulate_tenants
from gpusim.machine.profile import Profile
from gpusim.machine.tenancy import MPS, Tenancy, Tenant
from gpusim.policies.compiled import I64
from gpusim.trace.trace import Trace
from gpusim.trace.workload import Workload

BATCH_FACTS = {
    "batch": "samples of the round",
    "memory": "bytes that the allocator could hold",
    "finished": "1 when the round did not run out of memory",
    "time_ns": "time of the round",
    "stall_share": "share of it in which kernels waited for memory",
    "reserved_peak": "most bytes held from the device",
}
SHARE_FACTS = {
    "share": "percentage of the multiprocessors that the first program could use",
    "progress": "what the first did in a ns beside the other, over what it does alone",
    "progress_beside": "the same of the other",
    "time_ns": "time until both had ended",
}


@dataclass(frozen=True)
class RoundSeen:
    """What came of a round, and what that is worth."""

    facts: Mapping[str, float]
    reward: float


class Game(Protocol):
    """Rounds that are chosen one after the other; `left` of them are still to come."""

    left: int

    def round(self, action: int) -> RoundSeen:
        """The next round, done as this action says."""
        ...


class BatchGame:
    """A training whose batch is one of `batches` each round; worth: samples a millisecond, none of a round out of memory."""

    def __init__(self, trace: Trace, profile: Profile, batches: Sequence[int], rounds: int, **choices: Any) -> None:
        if not batches or min(batches) < 1:
            raise GpusimError("a batch has at least one sample", hint="batches=(32, 64, 96)")
        self.batches, self.left = batches, rounds
        self._env, self._job = begun(trace, profile, rounds=rounds, **choices)
        self._env.process(self._job.run(self._env, self._asked()))
        self._next = 0

    def _asked(self) -> Controller:
        while True:
            yield self.batches[self._next]

    def round(self, action: int) -> RoundSeen:
        """The next round, with this batch."""
        self._next = action
        done = len(self._job.rounds)
        while len(self._job.rounds) == done:
            self._env.step()
        self.left -= 1
        r = self._job.rounds[-1]
        facts = {name: float(getattr(r, name)) for name in BATCH_FACTS}
        return RoundSeen(facts, r.batch / (r.time_ns / 1e6) if r.finished and r.time_ns else 0.0)


class ShareGame:
    """Two programs under MPS, of which the first has one of `shares` percent of the multiprocessors each round, the other the
    rest; worth: the mean of how fast they go on, 1 as if alone."""

    def __init__(self, works: Sequence[Workload], profile: Profile, shares: Sequence[int], rounds: int, **choices: Any) -> None:
        if not shares or not all(1 <= share <= 99 for share in shares):
            raise GpusimError("a share leaves both programs something", hint="shares=(25, 50, 75), percent")
        self.shares, self.rounds, self.left = shares, rounds, rounds
        self._works, self._profile, self._choices = works, profile, choices
        self._room = capacities(profile, len(works))
        self._alone = [self._lone(work) for work in works]
        self._known: dict[int, RoundSeen] = {}  # equal rounds are simulated once

    def _lone(self, work: Workload) -> tuple[I64, int]:
        done = simulate_tenants([Program(work, self._profile, capacities(self._profile, 1)[0])], None, **self._choices)
        if not done.results[0].finished:
            raise GpusimError(f"{work.trace.name} does not fit on {self._profile.name} alone")
        return done.began[0], int(done.results[0].metrics["makespan_ns"])

    def again(self) -> ShareGame:
        """The same from its first round on; what has been simulated is known."""
        self.left = self.rounds
        return self

    def round(self, action: int) -> RoundSeen:
        """Both programs once, with this share."""
        share = self.shares[action]
        if share not in self._known:
            self._known[share] = self._both(share)
        self.left -= 1
        return self._known[share]

    def _both(self, share: int) -> RoundSeen:
        caps = (share, 100 - share)
        programs = [
            Program(work, self._profile, room, cap) for work, room, cap in zip(self._works, self._room, caps, strict=True)
        ]
        done = simulate_tenants(programs, Tenancy(MPS, (Tenant(), Tenant())), **self._choices)
        ended = all(one.finished for one in done.results)
        rates = progress(done, self._alone) if ended else (0.0, 0.0)
        time = max(int(one.metrics["makespan_ns"]) for one in done.results)
        return RoundSeen(dict(zip(SHARE_FACTS, (share, *rates, time), strict=True)), sum(rates) / 2)
