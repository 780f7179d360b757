"""A program as ranks on the GPUs of a machine: layouts, each simulated with all its ranks."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from gpusim.base.errors import GpusimError
from gpusim.base.units import show_bytes
from gpusim.experiment.ranked import DividedProgram, divided, simulated_ranks
from gpusim.machine import sharing
from gpusim.machine.collectives.times import CollectiveTimes
from gpusim.machine.identity import profile_hash
from gpusim.machine.profile import Profile
from gpusim.machine.topology import build
from gpusim.machine.topology.topology import Topology
from gpusim.policies.registry import SHIPPED, Registry
from gpusim.programs import transforms
from gpusim.programs.ranks.layout import RankLayout, parse_layout
from gpusim.programs.ranks.placement import PACKED
from gpusim.programs.transforms import NONE, around_ranks
from gpusim.programs.transforms.registry import steps
from gpusim.studies.capacity.remedies import FitRemedy
from gpusim.studies.capacity.settings import USUAL, AllocatorSettings
from gpusim.studies.capacity.times import StepBar, last_iteration, step_bar, times_on
from gpusim.trace.iterations import iterations
from gpusim.trace.roles import STEP, phase_kinds
from gpusim.trace.trace import Trace

TRIED = (NONE, "checkpointing")
"""Transforms of a program that trains; the next where it does not fit after the one before."""
BATCH, LAST_STEP = "batch", "step"
MICROBATCHES = 4  # for each stage of a pipeline
Layouts = tuple[str, tuple[str, ...]]
"""A layout, and the transforms beside it of which the first is taken with which the program fits."""
_SHARE = sharing.write(sharing.WORDS)
_DIVIDES = re.compile(r"(tensor_parallel|data_parallel|zero)\s*\(([^)]*)\)")


@dataclass(frozen=True)
class LayoutAnswer:
    """A layout of the program on the machine.

    layout    degrees of parallelism, as `gpusim run` reads them
    chain     transforms beside it
    reserved  most bytes that the allocator of a rank held, and `rank` which; None where it does not fit
    batch_ns  time for each batch of the recording, all ranks together; `low_ns` and `high_ns`: its interval
    of        what took that time: a batch, or of a program that does not train its last step, as on one GPU
    why       it does not fit
    """

    layout: str
    chain: str = NONE
    reserved: int | None = None
    rank: int = 0
    batch_ns: int = 0
    low_ns: int = 0
    high_ns: int = 0
    of: str = BATCH
    why: str = ""

    @property
    def fits(self) -> bool:
        return self.reserved is not None

    @property
    def gpus(self) -> int:
        """As many as there are ranks."""
        return parse_layout(self.layout).ranks

    def __str__(self) -> str:
        return self.layout if self.chain == NONE else f"{self.chain} | {self.layout}"


@dataclass(frozen=True)
class RanksAnswer:
    """A program on several GPUs of one machine.

    machine  as `gpusim machines` takes it
    profile  of its GPUs
    room     bytes of each for the program
    layouts  those that fit first, the faster first
    """

    machine: str
    profile: str
    room: int
    layouts: tuple[LayoutAnswer, ...]

    @property
    def best(self) -> LayoutAnswer | None:
        """The least time for a batch; None where nothing fits."""
        return next((one for one in self.layouts if one.fits), None)


def _trains(trace: Trace) -> bool:
    return bool((phase_kinds(trace) == STEP).any())


def machine_with(profile: Profile, gpus: int) -> Topology | None:
    """The machine of the catalogue with so many of this GPU: of those with the fewest GPUs the one with the fastest links.

    None where there is none; estimated machines do not count.
    """
    found = [machine for machine in _catalogue() if len(machine.gpus) >= gpus and _has(machine, profile)]
    return min(found, key=lambda m: (len(m.gpus), -sum(link.rate for link in m.links.values()), m.name), default=None)


@lru_cache(maxsize=1)
def _catalogue() -> list[Topology]:
    return [machine for machine in map(build.load, build.names()) if not machine.file.estimate]


def _has(machine: Topology, profile: Profile) -> bool:
    """Whether all GPUs are of this profile, number by number."""
    first = machine.profile(machine.gpus[0])
    return first.name == profile.name and profile_hash(first) == profile_hash(profile)


def default_layouts(trace: Trace, machine: Topology, gpus: int) -> list[str]:
    """What is tried for a program that trains, or for one that does not.  Tensor parallelism stays within a host."""
    hosts = len({machine.host[gpu] for gpu in machine.gpus[:gpus]})
    each = gpus // hosts
    if not _trains(trace):
        return [f"tensor={each}"]
    whole = RankLayout(pipeline=gpus, microbatches=MICROBATCHES * gpus)
    split = RankLayout(tensor=each, pipeline=hosts, microbatches=MICROBATCHES * hosts)
    return [f"data={gpus} zero=2", f"data={gpus} zero=3", f"tensor={each}" if hosts == 1 else str(split), str(whole)]


def default(trace: Trace, machine: Topology, gpus: int) -> list[Layouts]:
    """Each layout by itself, then after what makes a program that trains smaller."""
    trains = _trains(trace)
    return [(layout, TRIED if trains else TRIED[:1]) for layout in default_layouts(trace, machine, gpus)]


def named(remedies: Sequence[FitRemedy], trace: Trace, machine: Topology, gpus: int) -> list[Layouts]:
    """What a user's chains name: "checkpointing | zero(stage=3, ranks=8)" is a layout with a transform beside it; chains that
    divide nothing stand beside every layout that is tried by default.

    Raises GpusimError for a parameter that a layout does not have.
    """
    found = [_layout_of(remedy.chain) for remedy in remedies if not remedy.swap]
    divided: list[Layouts] = [(str(layout), (chain,)) for layout, chain in found if layout is not None and layout.ranks <= gpus]
    beside = tuple(dict.fromkeys(chain for layout, chain in found if layout is None))
    return divided or [(layout, beside) for layout in default_layouts(trace, machine, gpus)]


def _layout_of(chain: str) -> tuple[RankLayout | None, str]:
    """The layout that the transforms of a chain make of it, and the others.

    Raises GpusimError for a parameter that a layout does not have.
    """
    degrees, left = dict[str, int](), list[str]()
    for step in steps(chain):
        if (match := _DIVIDES.fullmatch(step)) is None:
            left.append(step)
            continue
        said = dict(pair.split("=") for pair in match[2].replace(" ", "").split(",") if "=" in pair)
        if other := sorted(said.keys() - {"ranks", "stage"}):
            raise GpusimError(f"'{step}' is simulated with all its ranks, which have no '{other[0]}'", hint="leave it out")
        name = "tensor" if match[1] == "tensor_parallel" else "data"
        degrees[name] = int(said.get("ranks", 8))
        if match[1] == "zero":
            degrees["zero"] = int(said.get("stage", 1))
    return (parse_layout(degrees) if degrees else None), " | ".join(left) or NONE


def on_ranks(
    trace: Trace, machine: Topology, gpus: int, settings: AllocatorSettings = USUAL, own: Registry = SHIPPED,
    tried: Sequence[Layouts] = (),
) -> RanksAnswer:  # fmt: skip
    """The program over so many GPUs of the machine, in each layout with the first transforms with which it fits.

    tried  none: the default
    """
    profile, collectives = machine.profile(machine.gpus[0]), CollectiveTimes(machine)
    found = [
        _tried(trace, collectives, layout, chains, settings, own)
        for layout, chains in tried or default(trace, machine, gpus)
    ]
    of = BATCH if _trains(trace) else LAST_STEP
    done = sorted((replace(one, of=of) for one in found), key=lambda one: (not one.fits, one.batch_ns))
    return RanksAnswer(machine.name, profile.name, settings.room(profile), tuple(done))


def _tried(
    trace: Trace, collectives: CollectiveTimes, layout: str, chains: Sequence[str], settings: AllocatorSettings, own: Registry
) -> LayoutAnswer:
    """With the first transforms with which it fits; else with the last that the program allows."""
    answer = None
    for chain in chains:
        try:
            answer = _simulated(trace, collectives, layout, chain, settings, own)
        except GpusimError as error:
            answer = answer or LayoutAnswer(layout, chain, why=error.message)
        if answer.fits:
            break
    assert answer is not None, "a layout has transforms beside it, or none"
    return answer


def _simulated(
    trace: Trace, collectives: CollectiveTimes, layout: str, chain: str, settings: AllocatorSettings, own: Registry
) -> LayoutAnswer:
    """Raises GpusimError for a layout that the program or the machine does not allow."""
    before, after = around_ranks(chain, own)
    program = _transformed(trace, before, own)
    room = settings.room(collectives.machine.profile(collectives.machine.gpus[0]))
    ran = divided(
        program, collectives, layout, PACKED, own, slower={}, host_memory=_all, share=_SHARE, after=after
    )
    if ran.largest > room:
        return LayoutAnswer(layout, chain, why=f"{show_bytes(ran.largest)} are alive at once on a rank")
    trains = _trains(trace)
    done = simulated_ranks(
        program, collectives, layout, PACKED, own, slower={}, memory=lambda _: room, host_memory=_all, share=_SHARE,
        after=after, place=settings.place, evict=NONE, log=not trains,
    )  # fmt: skip
    if not done.finished:
        failure = done.failure or {}
        return LayoutAnswer(layout, chain, why=f"rank {failure.get('rank', 0)}: {failure.get('advice', done.outcome)}")
    held = [int(rank.metrics["reserved_peak_bytes"]) for rank in done.ranks]
    kept = LayoutAnswer(layout, chain, max(held), held.index(max(held)))
    if trains:
        low, high = _interval(ran, int(done.metrics["makespan_ns"]))
        return replace(kept, batch_ns=int(done.metrics["batch_ns"]), low_ns=low, high_ns=high)
    each = zip(done.ranks, ran.programs, strict=True)
    last = max(last_iteration(rank, program.work.trace) for rank, program in each)
    low, high = _bar(ran)[0].interval(last)
    return replace(kept, batch_ns=last, low_ns=low, high_ns=high)


@lru_cache(maxsize=4)
def _transformed(trace: Trace, chain: str, own: Registry) -> Trace:
    return transforms.apply(trace, chain, own)


def _interval(ran: DividedProgram, makespan: int) -> tuple[int, int]:
    """Of the time for a batch."""
    bar, turns = _bar(ran)
    low, high = bar.interval(makespan // turns)
    return round(low * turns / ran.batches), round(high * turns / ran.batches)


def _bar(ran: DividedProgram) -> tuple[StepBar, int]:
    """Of a step, by the kernels of the rank that has the most of them; and how many steps there are."""
    most = max(ran.programs, key=lambda program: int(program.work.duration.sum()))
    trace = most.work.trace
    return step_bar(trace, times_on(trace, most.profile), most.profile), int(iterations(trace).max(initial=0)) + 1


def _all(largest: int) -> None:
    """Of its host's memory each rank has its part."""
