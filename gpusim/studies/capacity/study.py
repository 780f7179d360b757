"""The answer for each machine: does it fit, what would make it fit, how long does a step take, how large may the batch be."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache

from gpusim.base.errors import GpusimError
from gpusim.base.units import show_bytes
from gpusim.engine.run.simulate import simulate
from gpusim.machine.profile import Profile
from gpusim.policies.registry import SHIPPED, Registry
from gpusim.policies.trials.allocator_replay import ENDLESS, replay
from gpusim.policies.trials.allocator_requests import of_trace
from gpusim.programs import transforms
from gpusim.results.result import Result
from gpusim.studies.capacity.batches import Batches
from gpusim.studies.capacity.need import Need, need
from gpusim.studies.capacity.ranks import RanksAnswer
from gpusim.studies.capacity.remedies import AS_IT_IS, FitRemedy
from gpusim.studies.capacity.settings import USUAL, AllocatorSettings
from gpusim.studies.capacity.times import CERTAIN, NO_TABLES, StepBar, Tables, last_iteration, refused, step_bar, times_on
from gpusim.trace.trace import I64, Trace


@dataclass(frozen=True)
class Way:
    """The program on one machine after one remedy: it finished.

    step_ns   the last iteration; None: the program does not say what it takes
    reserved  most bytes that the allocator held
    bar       how sure the time is
    """

    remedy: FitRemedy
    step_ns: int | None
    reserved: int
    bar: StepBar = CERTAIN


@dataclass(frozen=True, eq=False)
class MachineAnswer:
    """One machine.

    capacity bytes that the CUDA context leaves of the memory
    free_ns  the last iteration with a memory that never fills; None as with `Way`
    ways     what fits: the program as it is, and what was tried instead or beside it, fastest first
    refused  the others, and why
    batch    the largest that fits as it is: samples where the recording says how many it has, else in recorded batches
    helped   the largest that fits with the fastest way on one GPU, where it does not fit as it is
    bar      how sure the times of the program as it is are
    """

    profile: Profile
    capacity: int
    free_ns: int | None
    ways: tuple[Way, ...]
    refused: dict[str, str]
    batch: float | None  # None: cannot be told
    bar: StepBar = CERTAIN
    helped: float | None = None

    @property
    def fits(self) -> bool:
        """As it is."""
        return any(way.remedy == AS_IT_IS for way in self.ways)

    def best(self, several: bool = False) -> Way | None:
        """The fastest on one GPU, or on several."""
        return next((way for way in self.ways if (way.remedy.gpus > 1) == several), None)

    def slowdown(self, way: Way) -> float | None:
        """Against the program as it is on this machine with a memory that never fills; None where no time can be told."""
        if way.step_ns is None or self.free_ns is None:
            return None
        return way.step_ns / self.free_ns if self.free_ns else 1.0


@dataclass(frozen=True, eq=False)
class CapacityStudy:
    """A program on all machines.

    needs     of each remedy's transforms that the program allows; of the others why not
    timeless  why no time can be told, "" where it can: then the answers are about memory alone
    ranks     of several GPUs, whose ranks were all simulated
    """

    needs: dict[str, Need]
    impossible: dict[str, str]
    answers: list[MachineAnswer]
    settings: AllocatorSettings
    timeless: str
    ranks: tuple[RanksAnswer, ...] = ()

    @property
    def need(self) -> Need:
        """Of the program as it is."""
        return self.needs[AS_IT_IS.chain]


@dataclass(frozen=True)
class StudyExtent:
    """How much is asked of each machine.

    where_it_fits  remedies are tried even if the program fits as it is
    largest_batch  the largest batch that fits is searched for
    apart          names of profiles of which remedies on several GPUs are not tried here
    """

    where_it_fits: bool = False
    largest_batch: bool = True
    apart: frozenset[str] = frozenset()


WHAT_FITS = StudyExtent()


def silent(done: int, of: int) -> None:
    """No progress is shown."""


def study(
    trace: Trace, profiles: Sequence[Profile], tried: Sequence[FitRemedy], progress: Callable[[int, int], object] = silent,
    settings: AllocatorSettings = USUAL, own: Registry = SHIPPED, tables: Tables = NO_TABLES, extent: StudyExtent = WHAT_FITS,
) -> CapacityStudy:  # fmt: skip
    """Asks for each machine.  What a program reserves is found once for each chain; machines simulate what may fit them.

    tables  machine -> the user's own measured times of kernels
    """
    timeless = refused(trace)
    if timeless:
        tried = (AS_IT_IS,)
    needs, impossible = {AS_IT_IS.chain: need(trace, settings)}, {}
    for remedy in tried:
        if remedy.chain not in needs and remedy.chain not in impossible:
            try:
                needs[remedy.chain] = need(transforms.apply(trace, remedy.chain, own), settings)
            except GpusimError as error:
                impossible[remedy.chain] = error.message
    most = max((settings.room(profile) for profile in profiles), default=0)
    batches = cache(lambda chain: Batches(trace, most, settings, chain, own))
    answers = []
    for done, profile in enumerate(profiles):
        if timeless:
            answers.append(_memory_alone(profile, needs[AS_IT_IS.chain], settings))
        else:
            possible = [r for r in tried if r.chain in needs and (r.gpus == 1 or profile.name not in extent.apart)]
            answers.append(_answer(profile, possible, needs, batches, settings, tables, extent))
        progress(done + 1, len(profiles))
    return CapacityStudy(needs, impossible, answers, settings, timeless)


def _memory_alone(profile: Profile, n: Need, settings: AllocatorSettings) -> MachineAnswer:
    """Whether the program's requests fit, of a program whose operators cannot be timed on the machine."""
    room = settings.room(profile)
    if n.reserved <= room:
        return MachineAnswer(profile, room, None, (Way(AS_IT_IS, None, n.reserved),), {}, None)
    tried = replay(of_trace(n.trace), settings.allocator(), room)  # cached segments are given back
    if tried.fits:
        return MachineAnswer(profile, room, None, (Way(AS_IT_IS, None, tried.held_peak),), {}, None)
    return MachineAnswer(profile, room, None, (), {str(AS_IT_IS): f"{show_bytes(n.live)} are alive at once"}, None)


def _answer(
    profile: Profile, tried: Sequence[FitRemedy], needs: dict[str, Need], batches: Callable[[str], Batches],
    settings: AllocatorSettings, tables: Tables, extent: StudyExtent,
) -> MachineAnswer:  # fmt: skip
    n, room = needs[AS_IT_IS.chain], settings.room(profile)
    times = times_on(n.trace, profile, tables)
    free = _simulated(n, profile, settings, ENDLESS, ("none", "none"), times.ns)
    free_ns = last_iteration(free, n.trace)
    largest = batches(AS_IT_IS.chain).largest(room) if extent.largest_batch else None
    bar = step_bar(n.trace, times, profile)
    if n.reserved <= room and not extent.where_it_fits:
        return MachineAnswer(profile, room, free_ns, (Way(AS_IT_IS, free_ns, n.reserved, bar),), {}, largest, bar)
    ways, helpless = [], {}
    for remedy in tried:
        found = _try(profile, remedy, needs[remedy.chain], settings, tables)
        if isinstance(found, str):
            helpless[str(remedy)] = found
            continue
        ways.append(found)
        if remedy == AS_IT_IS and not extent.where_it_fits:
            break
    made = MachineAnswer(profile, room, free_ns, tuple(sorted(ways, key=lambda way: way.step_ns or 0)), helpless, largest, bar)
    best = made.best()
    if made.fits or best is None or best.remedy.swap or not extent.largest_batch:
        return made
    return replace(made, helped=batches(best.remedy.chain).largest(room))


def _try(profile: Profile, remedy: FitRemedy, n: Need, settings: AllocatorSettings, tables: Tables) -> Way | str:
    """The remedy on this machine, or why it does not help."""
    lacks = remedy.lacks(profile)
    if lacks:
        return lacks
    room = settings.room(profile)
    if n.live > room and not remedy.swap:
        return f"{show_bytes(n.live)} are alive at once"
    times = times_on(n.trace, profile, tables)
    result = _simulated(n, profile, settings, room, ("lru", "next_k") if remedy.swap else ("none", "none"), times.ns)
    if not result.finished:
        return str((result.failure or {}).get("advice", result.outcome))
    reserved, bar = int(result.metrics["reserved_peak_bytes"]), step_bar(n.trace, times, profile)
    return Way(remedy, last_iteration(result, n.trace), reserved, bar)


def _simulated(
    n: Need, profile: Profile, settings: AllocatorSettings, capacity: int, policies: tuple[str, str], durations: I64
) -> Result:
    evict, prefetch = policies
    return simulate(
        n.trace, profile, capacity_bytes=capacity, place=settings.place, evict=evict, prefetch=prefetch, log=True,
        durations=durations,
    )  # fmt: skip
