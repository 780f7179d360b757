"""One run of all ranks of a program on a machine of several GPUs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from gpusim.base.defaults import LATER
from gpusim.engine.run.folded import simulate_folded, unlike
from gpusim.engine.run.ranks import FlowOf, simulate_ranks
from gpusim.experiment.layouts import load_whole
from gpusim.experiment.link_loads import link_bytes
from gpusim.machine import sharing
from gpusim.machine.chain import lends
from gpusim.machine.collectives.passes import Kind
from gpusim.machine.collectives.times import CollectiveTimes
from gpusim.machine.identity import profile_hash
from gpusim.machine.kernels.alone import alone
from gpusim.machine.kernels.durations import durations, shares
from gpusim.machine.profile import Profile, changed
from gpusim.machine.topology.transfers import LinkFlow
from gpusim.policies.placing import GroupExchange
from gpusim.policies.registry import Registry
from gpusim.programs import transforms
from gpusim.programs.ranks.degrees import check_degrees
from gpusim.programs.ranks.described import recorded_waits
from gpusim.programs.ranks.layout import RankLayout, parse_layout
from gpusim.programs.ranks.matching import ABSENT, Members, matched
from gpusim.programs.ranks.order import check_order
from gpusim.programs.ranks.placement import group_exchanges, placed
from gpusim.programs.ranks.recorded import RankPrograms
from gpusim.programs.ranks.stragglers import Pace, by_rank, constant
from gpusim.results.ranks import of_all
from gpusim.results.result import Result
from gpusim.trace.iterations import iterations
from gpusim.trace.trace import KERNEL, Trace
from gpusim.trace.workload import Workload, build

_OVER_HOST = ("h2d_bytes", "d2h_bytes", "program_h2d_bytes", "program_d2h_bytes")
Memory = Callable[[int], int | None]
"""Bytes of the program of the largest rank -> bytes that each may use, None: what its GPU has"""


class RankProgram(NamedTuple):
    """The program of a rank on its GPU, and where its kernel times are from: metrics that all ranks with it have."""

    work: Workload
    profile: Profile
    basis: dict[str, float]


class DividedProgram(NamedTuple):
    """The program of each rank and its GPU, by name and with its part of the host's memory.

    layout     that divides the program; None where each rank was recorded
    members    (rank, group) -> ranks of the group
    batches    of the recording that all ranks go through together; 0: not known
    paces      of ranks whose kernels take longer
    exchanges  of all ranks, each once
    """

    layout: RankLayout | None
    members: Members
    batches: int
    gpus: tuple[str, ...]
    programs: list[RankProgram]
    given: list[Profile]
    paces: dict[int, Pace]
    exchanges: list[GroupExchange]

    @property
    def largest(self) -> int:
        """Bytes that the program of a rank holds at most."""
        return max(program.work.live_peak for program in self.programs)

    @property
    def changing(self) -> dict[int, Pace]:
        """Of ranks whose kernels take another time from some time on; the others' programs have it."""
        return {rank: pace for rank, pace in self.paces.items() if constant(pace) is None}

    def known(self, rank: int) -> dict[str, Any]:
        """What is known of a rank before it runs, as its result says it."""
        said: dict[str, Any] = {"gpu": self.gpus[rank]}
        if (pace := self.paces.get(rank)) is not None:
            same = constant(pace)
            said["slower"] = [list(step) for step in pace] if same is None else same
        return said | ({ABSENT: True} if self.programs[rank].work.trace.meta.get(ABSENT) else {})


def simulated_ranks(
    trace: Trace | RankPrograms, collectives: CollectiveTimes, layout: str, placement: str | Sequence[str], own: Registry, *,
    slower: Mapping[str, Pace], memory: Memory, host_memory: Memory, share: str, fold: bool = False,
    after: str = transforms.NONE, beside: Sequence[LinkFlow] = (), **choices: Any,
) -> Result:  # fmt: skip
    """The ranks of a program, each on its GPU of the machine, as one result.  Ranks of one host share its memory evenly.

    trace     of one GPU, as it was recorded, or that of each rank
    collectives  their times on the machine
    layout    degrees of parallelism, as `programs.ranks.layout` reads them; AS_RECORDED where each rank has its own trace
    own       the user's transforms and policies
    slower    rank ("3") or GPU -> how much longer its kernels take, and from when on
    fold      simulate one rank of each pipeline stage for all like it
    after     transforms of each rank's program
    beside    bytes of others on the machine's links
    choices   policies, seed and log as `engine.run.simulate.prepared` takes them, the same for all ranks

    Raises GpusimError for a layout that the program or the machine does not allow.
    """
    ran = divided(trace, collectives, layout, placement, own, slower=slower, host_memory=host_memory, share=share,
                  after=after)  # fmt: skip
    choices |= {"capacity_bytes": memory(ran.largest), "share": share, "beside": beside}
    ranks = _folded(ran, collectives, choices) if fold else None
    if ranks is None:
        ranks = simulate_ranks(
            [program.work for program in ran.programs], ran.given, collectives.machine, ran.gpus, ran.members,
            flow_by(collectives), ran.changing, **choices,
        )  # fmt: skip
    said = recorded(trace) if isinstance(trace, RankPrograms) else [{}] * len(ranks)
    done = of_all([_kept(rank, ran.known(i), ran.programs[i], said[i]) for i, rank in enumerate(ranks)])
    if not done.finished:
        return done
    passed = link_bytes(collectives, ran.gpus, ran.exchanges, ranks)
    batch = {"batch_ns": round(done.metrics["makespan_ns"] / ran.batches)} if ran.batches else {}
    return replace(done, spec={**done.spec, "link_bytes": passed}, metrics={**done.metrics, **batch})


def _folded(ran: DividedProgram, collectives: CollectiveTimes, choices: Mapping[str, Any]) -> list[Result] | None:
    """The result of each rank, from one of each pipeline stage; None where one runs out of memory: then each has to be asked.

    Raises GpusimError for ranks that are not alike.
    """
    if ran.layout is None:
        raise unlike("each was recorded by itself")
    if lends(str(choices.get("tiers", LATER["tiers"]))):
        raise unlike("they lend each other memory")
    stage_of = [ran.layout.place(rank)[2] for rank in range(ran.layout.ranks)]
    first = [stage_of.index(stage) for stage in range(ran.layout.pipeline)]
    for rank, stage in enumerate(stage_of):
        if ran.paces or ran.programs[rank] is not ran.programs[first[stage]]:
            raise unlike(f"ranks {first[stage]} and {rank} differ in their kernels' times")
    of_stage = simulate_folded(
        [ran.programs[rank].work for rank in first], [ran.given[rank] for rank in first], collectives.machine, ran.gpus,
        ran.layout, flow_by(collectives), **choices,
    )  # fmt: skip
    if not all(result.finished for result in of_stage):
        return None
    for rank, result in zip(first, of_stage, strict=True):
        if any(result.metrics.get(name, 0) for name in _OVER_HOST):
            raise unlike(f"rank {rank} copies from or to its host, over links that ranks share which are not simulated")
    return [of_stage[stage] for stage in stage_of]


def _batches(layout: RankLayout, trace: Trace) -> int:
    return layout.data * layout.microbatches * (int(iterations(trace).max(initial=0)) + 1)


def divided(
    trace: Trace | RankPrograms, collectives: CollectiveTimes, layout: str, placement: str | Sequence[str], own: Registry, *,
    slower: Mapping[str, Pace], host_memory: Memory, share: str, after: str = transforms.NONE,
) -> DividedProgram:  # fmt: skip
    """The programs of all ranks; arguments as in `simulated_ranks`.

    Raises GpusimError for a layout that the program or the machine does not allow.
    """
    machine, words = collectives.machine, sharing.parse(share)
    degrees = None if isinstance(trace, RankPrograms) else parse_layout(layout)
    if isinstance(trace, RankPrograms):
        members, traces = trace.members, list(trace.programs)
    else:
        assert degrees is not None
        check_degrees(trace, degrees)
        members, traces = degrees.members, of_all_ranks(trace, degrees, own, after)
    exchanges = group_exchanges(traces, members)
    busy = [_on_gpu(each, machine.profile(machine.gpus[0]), words, 1.0).work for each in {id(t): t for t in traces}.values()]
    kernels = max(int(work.duration[work.trace.activity == KERNEL].sum()) for work in busy)
    gpus = placed(collectives, len(traces), placement, exchanges, kernels, own)
    paces = by_rank(slower, gpus, machine.gpus)
    same = {rank: constant(pace) or 1.0 for rank, pace in paces.items()}
    programs = [_on_gpu(traces[rank], machine.profile(gpu), words, same.get(rank, 1.0)) for rank, gpu in enumerate(gpus)]
    of_host = Counter(machine.host[gpu] for gpu in gpus)
    said = host_memory(max(program.work.live_peak for program in programs))
    given = [
        changed(program.profile, "host.capacity", has // of_host[machine.host[gpu]])
        for program, gpu in zip(programs, gpus, strict=True)
        for has in [machine.host_memory(gpu) if said is None else said]
    ]
    batches = 0 if degrees is None or isinstance(trace, RankPrograms) else _batches(degrees, trace)
    return DividedProgram(degrees, members, batches, gpus, programs, given, paces, exchanges)


def of_all_ranks(trace: Trace, degrees: RankLayout, own: Registry, after: str = transforms.NONE) -> list[Trace]:
    """The program of each rank, after these transforms; ranks of a stage have one object."""
    chains = [f"{degrees.transform(stage) or transforms.NONE} | {after}" for stage in range(degrees.pipeline)]
    stages = [_stage(trace, chain, own) for chain in chains]
    return [stages[degrees.place(rank)[2]] for rank in range(degrees.ranks)]


def check_program(trace: Trace, layout: str, own: Registry) -> None:
    """Whether a program can be divided, and whether exchanges that it has itself can all come about; before anything runs.

    Raises GpusimError.
    """
    degrees = parse_layout(layout)
    check_degrees(trace, degrees)
    if trace.exchanges:
        programs = of_all_ranks(trace, degrees, own)
        check_order(programs, matched(programs, degrees.members))


def flow_by(collectives: CollectiveTimes) -> FlowOf:
    """What flows in a collective, by these times."""

    @cache
    def flow(kind: Kind, size: int, group: tuple[str, ...]) -> LinkFlow:
        return collectives.of(kind, group, size).flow

    return lambda kind, size, group: flow(kind, size, tuple(group))


def recorded(programs: RankPrograms) -> list[dict[str, int]]:
    """Metrics of each rank that its recording tells."""
    found = []
    for program, waited in zip(programs.programs, recorded_waits(programs, programs.check()), strict=True):
        timed = bool((program.duration > 0).any() and (program.time > 0).any())
        found.append({
            **({"recorded_ns": int(program.time.max())} if timed else {}),
            **({"recorded_collective_wait_ns": waited} if timed and waited >= 0 else {}),
        })  # fmt: skip
    return found


def _kept(rank: Result, known: dict[str, Any], program: RankProgram, said: Mapping[str, int]) -> Result:
    """The result of a rank with what is known of it here; one with a log keeps the program that ran."""
    spec, trace = {**rank.spec, **known}, program.work.trace
    metrics = {**rank.metrics, **program.basis, **said}
    if rank.log is None:
        return replace(rank, spec=spec, metrics=metrics)
    return replace(rank, spec={**spec, "program_hash": trace.content_hash}, metrics=metrics, program=trace)


@lru_cache(maxsize=4)
def collectives_of(file: Path, word: str) -> CollectiveTimes:
    """The times of collectives on the machine that a word means whose file has been found."""
    return CollectiveTimes(load_whole(file, word))


@lru_cache(maxsize=64)
def _stage(trace: Trace, chain: str, own: Registry) -> Trace:
    return transforms.apply(trace, chain, own)


def _on_gpu(trace: Trace, profile: Profile, share: tuple[str, ...], slower: float) -> RankProgram:
    """Kept as long as the trace is."""
    known, key = _KNOWN.setdefault(trace, {}), (profile_hash(profile), share, slower)
    if key not in known:
        known[key] = _timed(trace, profile, share, slower)
    return known[key]


_KNOWN: WeakKeyDictionary[Trace, dict[tuple[str, tuple[str, ...], float], RankProgram]] = WeakKeyDictionary()


def _timed(trace: Trace, profile: Profile, share: tuple[str, ...], slower: float) -> RankProgram:
    times = durations(alone(trace, share), profile)
    basis = {f"kernel_{name}_share": value for name, value in shares(times).items()}
    ns = np.where(trace.activity == KERNEL, np.rint(times.ns * slower), times.ns).astype(np.int64)
    return RankProgram(build(trace, ns), profile, basis if trace.ops else {})
