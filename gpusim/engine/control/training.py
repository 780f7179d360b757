"""Training under a controller: SimPy runs the rounds one after another, and other jobs that take and free device memory.

    controller ──batch──▶ job ──the program at this batch──▶ simulate()
        ▲                  │                                     │
        └──── Round ───────┴──────────────◀──────────────────────┘        neighbours ──bytes──▶ memory
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any

import simpy

from gpusim.base.errors import GpusimError, TraceError
from gpusim.base.units import show_bytes
from gpusim.engine.control import controller
from gpusim.engine.control.controller import Choice, Controller, Round
from gpusim.engine.run.simulate import simulate
from gpusim.machine.constants import machine
from gpusim.machine.profile import Profile
from gpusim.programs.transforms.scaling import recorded_size, scaled
from gpusim.results.result import Result
from gpusim.trace.trace import Trace

MOST = 10**7  # samples of a batch
MEMORY_STALLS = ("stall_swap_in_ns", "stall_swap_out_ns", "stall_alloc_ns")


def train(
    trace: Trace,
    profile: Profile,
    control: str | Controller = "aimd",
    *,
    rounds: int = 20,
    capacity_bytes: int | None = None,
    neighbours: Sequence[tuple[int, int]] = (),
    of: int = 0,
    **policies: Any,
) -> list[Round]:
    """Replay the trace `rounds` times, each with the batch, and perhaps the policies, that the controller asks for.

    control         "name(parameter=value)", or a generator as in `gpusim.engine.control.controller`
    capacity_bytes  what the allocator may hold while no other job runs; None: what the profile's device leaves
    neighbours      (ns, bytes): so much more of it is taken from this time on, or freed where negative; what changes
                    during a round shows in the next
    of              samples of the recording, where its meta does not say
    policies        place, evict, prefetch, use, ... of `simulate`; without `evict` nothing is swapped, and memory can run out

    Raises GpusimError for a controller that asks for less than one sample, TraceError where nothing says the batch.
    """
    env, job = begun(trace, profile, rounds=rounds, capacity_bytes=capacity_bytes, neighbours=neighbours, of=of, **policies)
    deciding = controller.get(control) if isinstance(control, str) else control
    env.run(until=env.process(job.run(env, deciding)))
    return job.rounds


def begun(
    trace: Trace, profile: Profile, *, rounds: int, capacity_bytes: int | None = None,
    neighbours: Sequence[tuple[int, int]] = (), of: int = 0, **policies: Any,
) -> tuple[simpy.Environment, RoundsJob]:  # fmt: skip
    """A training before its first round, and the clock on which its neighbours come and go; as for `train`."""
    capacity = machine(trace, profile, capacity_bytes).capacity
    env = simpy.Environment()
    job = RoundsJob(trace, profile, of or recorded_size(trace, ("batch",)), capacity, {"evict": "none", **policies}, rounds)
    for at, taken in neighbours:
        env.process(_neighbour(env, job, at, taken))
    return env, job


class RoundsJob:
    """A training: so many rounds of a program, and what came of those that are done."""

    def __init__(
        self, trace: Trace, profile: Profile, recorded: int, memory: int, policies: dict[str, Any], rounds: int
    ) -> None:
        self.trace, self.profile, self.recorded, self.memory, self.policies = trace, profile, recorded, memory, policies
        self.most = rounds
        self.rounds: list[Round] = []
        self._known: dict[tuple[int, int, str, str], Result] = {}  # equal rounds are simulated once

    def run(self, env: simpy.Environment, control: Controller) -> Generator[Any, Any, None]:
        """The SimPy process."""
        asked = next(control)
        for number in range(self.most):
            choice = asked if isinstance(asked, Choice) else Choice(asked)
            batch = choice.batch or self.recorded
            if not self.recorded and not (isinstance(asked, Choice) and asked.batch == 0):
                said = f"{self.trace.name}: its meta does not say its batch"
                raise TraceError(said, hint="say `of`: the samples of the recording")
            if batch != self.recorded and not 1 <= batch <= MOST:
                raise GpusimError(f"the controller asked for {batch:,} samples in round {number}", hint=f"1 to {MOST:,}")
            memory = self.memory
            done = self._result(choice, batch, memory)
            m = done.metrics
            time = int(m["makespan_ns"])
            waited = sum(int(m[name]) for name in MEMORY_STALLS)
            seen = Round(
                number, int(env.now), batch, memory, done.outcome, time, waited / max(1, time), int(m["reserved_peak_bytes"]),
                ", ".join(choice.policies.values()),
            )  # fmt: skip
            self.rounds.append(seen)
            yield env.timeout(time)
            asked = control.send(seen)

    def _result(self, choice: Choice, batch: int, memory: int) -> Result:
        if memory <= 0:
            raise GpusimError(f"the neighbours leave nothing of the device's memory ({show_bytes(memory)})")
        policies = self.policies | choice.policies
        known = (batch, memory, choice.release, choice.prefetch)
        if known not in self._known:
            program = self.trace if batch == self.recorded else scaled(self.trace, "batch", batch / self.recorded, square=False)
            self._known[known] = simulate(program, self.profile, capacity_bytes=memory, **policies)
        return self._known[known]


def _neighbour(env: simpy.Environment, job: RoundsJob, at: int, taken: int) -> Generator[Any, Any, None]:
    yield env.timeout(at)
    job.memory -= taken
