"""Kernels under managed memory on the island: each GPU is one, and all have one driver's tables.

    steps ──▶ those on the clock, up to one that is not ──islands side by side──▶ that step, in Python ──▶ those on the clock

Kernels are asynchronous, each in its stream.  What the program waits for, touches by the CPU and prefetches without a stream,
is on a stream of the host's (`issued.py`), and so are hints and frees.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from gpusim.base.compiled import address
from gpusim.base.tables import table
from gpusim.engine import state
from gpusim.engine.clock.links import SAME_INSTANT
from gpusim.engine.clock.managed import DOOR
from gpusim.engine.pages.door import door
from gpusim.engine.pages.driver_tables import DriverState
from gpusim.engine.pages.hints import number
from gpusim.engine.pages.issued import Issued, issued
from gpusim.engine.pages.launches import Paged, find, launched, pages, time_of, warps_of
from gpusim.engine.pages.paging import DISCARD, MIGRATE, RELEASE, TOUCH_READ, TOUCH_WRITE
from gpusim.engine.pages.traffic import PageTraffic
from gpusim.engine.pages.traffic import of as traffic_of
from gpusim.engine.pages.unfaulted import resident_blocks
from gpusim.engine.run import tables
from gpusim.engine.run.coupled import Coupled
from gpusim.engine.run.numbering import NO_BOUND
from gpusim.engine.run.side_by_side import SideBySide
from gpusim.engine.run.simulate import Simulation
from gpusim.machine.constants import Machine
from gpusim.machine.kernels.needs import ALL, KernelNeeds, begun
from gpusim.machine.platforms import Platform
from gpusim.machine.sharing import MEMORY, SMS
from gpusim.machine.tiers import COPY_ENGINES, Tier, TierLink
from gpusim.machine.topology.connections import Connections
from gpusim.policies import registry
from gpusim.programs.managed.layout import Span
from gpusim.programs.managed.steps import (
    Advise,
    Discard,
    Free,
    HostTouch,
    Kernel,
    Prefetch,
    moved_bytes,
    on_stream,
    title,
    waited_for,
)
from gpusim.trace import workload
from gpusim.trace.build import make_trace
from gpusim.trace.trace import COPY_PEER, KERNEL

MOVES = "cudaMemPrefetchAsync"
KEPT = 1 << 22  # flows that a log keeps at most; room that is not needed costs no memory
QUEUE = 1024  # kernels that the host may be ahead of a stream


def attach(simulation: Simulation, paged: Paged, *, stops: int = 0, log: bool = False) -> None:
    """The simulation's kernels touch managed memory from now on.

    stops  Python sees each so many operators that have ended
    log    keep all that flows
    """
    operators, pager, island = len(simulation.island.began), paged.tables.pager, simulation.island
    transfers, streams = paged.tables.transfers, len(island.running)
    role, engine = island.queues["role"], island.queues["engine"]
    engine[role == state.TO_DEVICE] = 0  # its copies to the GPU are of engines of their own, those to the host of the program's
    island.queues["slots"][(role != state.STREAM) & (engine == 0)] = NO_BOUND  # they share the link
    pager["tables"], pager["door"], pager["flows"], pager["stops"] = paged.placed.address, address(door, DOOR), 1, stops
    more = len(transfers) + 3 * streams  # that can flow: of each stream what it reads, writes and gets from other GPUs
    simulation.island = island._replace(
        pager=pager, warps=paged.tables.warps, transfers=transfers, flow=table(len(island.flow) + more, state.FLOW),
        heap=table(len(island.heap) + 2 * more, state.EVENT), ended=np.full(operators, state.NEVER),
        stalled=np.zeros(operators, np.int64), traffic=table(KEPT if log else 1, state.TRAFFIC),
        grants=table(KEPT if log else 1, state.GRANT),
    )  # fmt: skip


class KernelOwner(Protocol):
    """The program whose kernels are on islands."""

    @property
    def seen(self) -> Callable[[int], bool] | None:
        """Called after each kernel that has ended, with its place among the steps; True when the program goes on."""


class OnIslands:
    """The kernels of a managed program, each GPU an island; `kernels` are those of `steps`, by their place there."""

    def __init__(
        self, M: DriverState, platform: Platform, steps: Sequence[Any], spans: Mapping[str, Span],
        seen: Callable[[int], bool] | None = None, between: Connections | None = None,
    ) -> None:  # fmt: skip
        """seen: called after each kernel that has ended, with its place in `steps`; True when the program goes on.

        between  what lies between the GPUs 1, 2, ..; None: each has a way of its own to the host
        """
        self.memory, self.seen = M, seen
        self.gpus = sorted(set(on_clock(steps).values()))
        self.runs = [OnIsland(self, M, platform, steps, spans, gpu) for gpu in self.gpus]
        simulations = [run.simulation for run in self.runs]
        if between is None or len(self.gpus) < 2:
            self.islands = SideBySide(simulations, lookahead=0)
        else:
            self.islands = Coupled(simulations, replace(between, beyond=[between.beyond[gpu - 1] for gpu in self.gpus]))
        self.of = {place: run for run in self.runs for place in run.places}

    def run(self, first: int, outer: int, now: float) -> float:
        """Kernels at [first, outer) of the steps, from `now` on: when the last of them has ended, ns, or memory was full."""
        at = math.ceil(now - SAME_INSTANT)
        for run in self.runs:
            run.until(first, outer, at)
            if not run.begins and isinstance(self.islands, Coupled):  # what still flows ahead of need ends with the GPU's turn
                run.simulation.island.transfers["state"][state.AHEAD] = state.IDLE
        self.islands.processes.rows["ended"] = [not run.begins for run in self.runs]
        self.islands.advance(state.NEVER)
        if self.memory.state["failed"][0]:
            return float(max(run.simulation.now for run in self.runs))
        return float(max([at, *(int(run.simulation.island.hosts[0]["time"]) for run in self.runs if run.begins)]))


    def result(self, place: int) -> tuple[float, float, float, Any]:
        """(start, end, for how long it stood, COUNT[P]) of the kernel there; NEVER where it has not begun, or not ended."""
        return self.of[place].result(place)

    def needs(self, place: int) -> tuple[int, int]:
        """Multiprocessors that the kernel there can use, and its duration without faults, ns; of a prefetch none."""
        run = self.of[place]
        o, program = run.operator[place], run.simulation.program
        touches = run.simulation.work.trace.activity[o] == KERNEL
        return int(program.sms[0, o]) if touches else 0, int(program.duration[o])

    def traffic(self) -> PageTraffic | None:
        """What has flowed, when a log was kept."""
        return traffic_of([run.simulation for run in self.runs], self.gpus, isinstance(self.islands, Coupled))


class OnIsland:
    """One GPU's kernels.  Between two that have a step of the host between them lies the end of a chunk."""

    steps = True

    def __init__(
        self, whole: KernelOwner, M: DriverState, platform: Platform, steps: Sequence[Any], spans: Mapping[str, Span],
        gpu: int, percentage: int = 100, **seat: Any,
    ) -> None:  # fmt: skip
        """What of the program is on this GPU.

        percentage  of the multiprocessors, what its kernels may use
        seat        among other processes, as `Paged` takes it
        """
        self.whole, self.gpu, on = whole, gpu, on_clock(steps)
        self.places = [i for i, its in on.items() if its == gpu]
        kernels = [_as_kernel(steps[i]) for i in self.places]
        self.operator = {place: o for o, place in enumerate(self.places)}
        self.issued = issued(steps, self.places, len(set(on.values())))
        each = launched([[kernel] for kernel in kernels], spans, platform, M)
        sent = [_act(steps[i], spans, platform) for i in self.places]
        self.paged = Paged(M, platform, each, self.issued.streams, gpu=gpu, sent=sent, **seat)
        self.simulation = _simulation(kernels, self.issued, platform, spans, percentage)
        self.simulation.paging = self
        attach(self.simulation, self.paged, stops=whole.seen is not None, log=len(M.log) > 1)
        self.simulation.island.pager["shares"] = any(getattr(step, "after", None) is not None for step in steps)
        self.begins, self.reported = False, np.zeros(len(kernels), bool)

    def until(self, first: int, outer: int, at: int) -> None:
        """Its kernels at [first, outer) of the program's steps come next, at this time."""
        mine = [self.operator[place] for place in range(first, outer) if place in self.operator]
        self.begins = bool(mine)
        if mine:
            self._issue(self.issued.first[mine[0]], self.issued.outer[mine[-1]], at)

    def _issue(self, first: int, outer: int, at: int) -> None:
        host = self.simulation.island.hosts[0]
        host["pc"], host["end"], host["more"], host["time"], host["state"] = first, outer, 1, at, state.RUNNING
        self.simulation.reason = state.REACHED

    def seen(self) -> bool:
        """Kernels have ended."""
        island, pager = self.simulation.island, self.simulation.island.pager
        pager["due"] = pager["ended"] = 0
        if self.whole.seen is not None:
            for o in np.flatnonzero((island.ended < state.NEVER) & ~self.reported).tolist():
                self.reported[o] = True
                if not self.whole.seen(self.places[o]):
                    return False
        return not pager[0]["failed"]

    def next_chunk(self) -> bool:
        return False

    def left(self) -> None:
        return

    def result(self, place: int) -> tuple[float, float, float, Any]:
        """(start, end, for how long it stood, COUNT[P]) of the kernel there."""
        o, island = self.operator[place], self.simulation.island
        return float(island.began[o]), float(island.ended[o]), float(island.stalled[o]), self.paged.of(o)


def on_clock(steps: Sequence[Any]) -> dict[int, int]:
    """Of each step that is on the clock, by its place in the program, the GPU on whose island it is."""
    gpus = sorted({step.gpu for step in steps if on_stream(step)}) or [1]
    on = {}
    for i, step in enumerate(steps):
        if on_stream(step):
            on[i] = step.gpu
        elif waited_for(step):
            on[i] = step.to if isinstance(step, Prefetch) and step.to in gpus else gpus[0]
    return on


def _as_kernel(step: Any) -> Kernel:
    """The step as its stream sees it: what is none is a kernel that touches nothing."""
    return step if isinstance(step, Kernel) else Kernel(MOVES, [], (1, 1), (1, 1), ns=0.0)


def _act(step: Any, spans: Mapping[str, Span], platform: Platform) -> tuple[int, ...] | None:
    """The row of `paging.ACT` of a step that is no kernel."""
    if isinstance(step, Kernel):
        return None
    span, whole = find(step.array, spans, title(step)), isinstance(step, Advise | Free)
    range_ = pages(span, 0 if whole else step.first, None if whole else step.count, platform, title(step))
    if isinstance(step, Advise):
        return state.NEVER, -1 - number(step), *range_, step.processor
    if isinstance(step, Free | Discard):
        return state.NEVER, RELEASE if isinstance(step, Free) else DISCARD, *range_, 0
    if isinstance(step, HostTouch):
        return state.NEVER, TOUCH_WRITE if step.write else TOUCH_READ, *range_, 0
    return state.NEVER, MIGRATE, *range_, step.to


def _simulation(
    kernels: Sequence[Kernel], said: Issued, platform: Platform, spans: Mapping[str, Span], percentage: int
) -> Simulation:
    """The kernels as a program of the island: their host takes no time, and memory has room for all."""
    duration = np.array([math.ceil(time_of(kernel, platform, spans) - SAME_INSTANT) for kernel in kernels], np.int64)
    names, op = np.unique([kernel.name for kernel in kernels], return_inverse=True)
    activity = np.where([kernel.name == MOVES for kernel in kernels], COPY_PEER, KERNEL)
    trace = make_trace(
        "kernels", {"size": [], "kind": said.kind, "arg": said.arg, "stream": said.stream, "op": op, "duration": duration,
         "activity": activity},
        {"op_names": [str(name) for name in names]}, check=False,
    )  # fmt: skip
    chosen = {kind: registry.get(kind, name) for kind, name in CHOSEN.items()}
    work = workload.build(trace, duration)
    shared = _shared(kernels, duration, platform, percentage)
    made = Simulation(work, _machine(platform), **chosen, seed=0, record=False, shared=shared)
    if len(said.kind) > tables.CHUNK:
        made.program = made.program._replace(instructions=tables.instructions(trace, 0, len(said.kind)))
    return made


CHOSEN = {"place": "cuda_malloc", "evict": "none", "prefetch": "none", "defrag": "none"}


def _shared(kernels: Sequence[Kernel], duration: Any, platform: Platform, percentage: int) -> tables.Shared:
    """What kernels need of the GPU: the SMs that hold their thread blocks, and its memory as far as they move bytes."""
    sms, limit = np.zeros((3, len(kernels)), np.int32), -(-percentage * platform.sms // 100)
    for o, kernel in enumerate(kernels):
        warps_of(kernel, platform)  # raises where none fits
        resident = resident_blocks(kernel, platform)
        wanted = -(-kernel.grid[0] * kernel.grid[1] // resident) if kernel.accesses else platform.sms
        whole = wanted <= platform.sms
        sms[:, o] = min(wanted, platform.sms), whole, ALL if whole else begun(wanted / limit)
    rate = platform.hbm / 1e9
    moved = np.array([moved_bytes(kernel.accesses, kernel, platform.l2) for kernel in kernels], float)
    need = np.minimum(np.divide(moved, duration, out=np.zeros(len(kernels)), where=duration > 0), rate)
    return tables.Shared((SMS, MEMORY), percentage, KernelNeeds(sms, need, limit, rate))


def _machine(platform: Platform) -> Machine:
    """The GPU and its link; launches and the allocator take no time, as a managed program's steps have theirs in them."""
    into, out = platform.link.in_rate / 1e9, platform.link.out_rate / 1e9
    both, peer = into + out, platform.peer_rate / 1e9
    links = {name: TierLink(name, rate) for name, rate in (("h2d", into), ("d2h", out), ("both", both))}
    host = Tier(
        "host", "host", 0, into, out, 0, 0, (links["h2d"], links["both"]), (links["d2h"], links["both"]), COPY_ENGINES, 1, 1
    )  # fmt: skip
    nothing = dict.fromkeys(
        ("latency", "wait", "peer_latency", "collective_latency", "nvme_latency", "submit", "operator", "gap", "cached",
         "malloc", "free"), 0,
    ) | dict.fromkeys(("malloc_per_byte", "free_per_byte", "move_per_byte"), 0.0)  # fmt: skip
    return Machine(
        capacity=1 << 40, tiers=(host,), chain="host", h2d=into, d2h=out, both=both, curve=(), curve_out=(),
        curve_collective=(), peer=peer or None, collective=peer or both, host=both, nvme_read=1.0, nvme_write=1.0,
        copies_in=1, copies_out=1, queue=QUEUE, **nothing,  # type: ignore[arg-type]
    )  # fmt: skip
