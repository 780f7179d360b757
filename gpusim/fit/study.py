"""The answer for each machine: does it fit, what would make it fit, how long does a step take, how large may the batch be."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from gpusim import transforms
from gpusim.core.log import ISSUE, START
from gpusim.engine.simulate import simulate
from gpusim.errors import GpusimError
from gpusim.fit.batches import Batches
from gpusim.fit.need import Need, need
from gpusim.fit.remedies import AS_IT_IS, Remedy
from gpusim.fragment.replay import ENDLESS
from gpusim.hardware.profile import Profile
from gpusim.results.result import Result
from gpusim.trace.iterations import iterations
from gpusim.trace.trace import OP, Trace
from gpusim.units import show_bytes


@dataclass(frozen=True)
class Way:
    """The program on one machine after one remedy: it finished.

    step_ns   the last iteration
    reserved  most bytes that the allocator held
    """

    remedy: Remedy
    step_ns: int
    reserved: int


@dataclass(frozen=True, eq=False)
class Answer:
    """One machine.

    free_ns  the last iteration with a memory that never fills
    ways     what fits: the program as it is and nothing else, or what was tried instead, fastest first
    refused  the others, and why
    batch    the largest that fits as it is: samples where the recording says how many it has, else in recorded batches
    """

    profile: Profile
    free_ns: int
    ways: tuple[Way, ...]
    refused: dict[str, str]
    batch: float | None  # None: cannot be told

    @property
    def capacity(self) -> int:
        """Bytes that the CUDA context leaves of the memory."""
        return room(self.profile)

    @property
    def fits(self) -> bool:
        """As it is."""
        return any(way.remedy == AS_IT_IS for way in self.ways)

    def best(self, several: bool = False) -> Way | None:
        """The fastest on one GPU, or on several."""
        return next((way for way in self.ways if (way.remedy.gpus > 1) == several), None)

    def slowdown(self, way: Way) -> float:
        """Against the program as it is on this machine with a memory that never fills."""
        return way.step_ns / self.free_ns if self.free_ns else 1.0


@dataclass(frozen=True, eq=False)
class Study:
    """A program on all machines.

    needs   of each remedy's transforms that the program allows; of the others why not
    """

    needs: dict[str, Need]
    impossible: dict[str, str]
    answers: list[Answer]

    @property
    def need(self) -> Need:
        """Of the program as it is."""
        return self.needs[AS_IT_IS.chain]


def room(profile: Profile) -> int:
    """Bytes of the GPU's memory that a program may use."""
    return int(profile.memory.capacity.value - profile.context.value)


def _silent(done: int, of: int) -> None:
    """Nobody watches."""


def study(
    trace: Trace, profiles: Sequence[Profile], tried: Sequence[Remedy], progress: Callable[[int, int], object] = _silent
) -> Study:
    """Asks for each machine.  What a program reserves is found once for each chain; machines simulate what may fit them."""
    needs, impossible = {AS_IT_IS.chain: need(trace)}, {}
    for remedy in tried:
        if remedy.chain not in needs and remedy.chain not in impossible:
            try:
                needs[remedy.chain] = need(transforms.apply(trace, remedy.chain))
            except GpusimError as error:
                impossible[remedy.chain] = error.message
    batches = Batches(trace, max((room(profile) for profile in profiles), default=0))
    answers = []
    for done, profile in enumerate(profiles):
        answers.append(_answer(profile, [r for r in tried if r.chain in needs], needs, batches))
        progress(done + 1, len(profiles))
    return Study(needs, impossible, answers)


def _answer(
    profile: Profile, tried: Sequence[Remedy], needs: dict[str, Need], batches: Batches
) -> Answer:
    n = needs[AS_IT_IS.chain]
    free = simulate(n.trace, profile, capacity_bytes=ENDLESS, evict="none", log=True)
    free_ns = last_iteration(free, n.trace)
    largest = batches.largest(room(profile))
    if n.reserved <= room(profile):
        return Answer(profile, free_ns, (Way(AS_IT_IS, free_ns, n.reserved),), {}, largest)
    ways, refused = [], {}
    for remedy in tried:
        found = _try(profile, remedy, needs[remedy.chain])
        if isinstance(found, str):
            refused[str(remedy)] = found
            continue
        ways.append(found)
        if remedy == AS_IT_IS:
            break
    return Answer(profile, free_ns, tuple(sorted(ways, key=lambda way: way.step_ns)), refused, largest)


def _try(profile: Profile, remedy: Remedy, n: Need) -> Way | str:
    """The remedy on this machine, or why it does not help."""
    lacks = remedy.lacks(profile)
    if lacks:
        return lacks
    if n.live > room(profile) and not remedy.swap:
        return f"{show_bytes(n.live)} are alive at once"
    evict, prefetch = ("lru", "next_k") if remedy.swap else ("none", "none")
    result = simulate(n.trace, profile, capacity_bytes=room(profile), evict=evict, prefetch=prefetch, log=True)
    if not result.finished:
        return str((result.failure or {}).get("advice", result.outcome))
    return Way(remedy, last_iteration(result, n.trace), int(result.metrics["reserved_peak_bytes"]))


def last_iteration(result: Result, trace: Trace) -> int:
    """ns on the device from the first operator of the last iteration to the end; all of it where there is one.

    The result must have its event log: the host issues operators long before they run.
    """
    makespan, log = int(result.metrics["makespan_ns"]), result.log
    of_ops = iterations(trace)[trace.kind == OP]
    if not len(of_ops) or log is None:
        return makespan
    first = int(np.argmax(of_ops == of_ops.max()))
    activity = log["addr"][(log["kind"] == ISSUE) & (log["a"] == first)]
    if not first or not len(activity):
        return makespan
    starts = log["t"][(log["kind"] == START) & (log["a"] == activity[0])]
    return makespan - int(starts[0]) if len(starts) else makespan
