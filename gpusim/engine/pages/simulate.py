"""simulate_uvm(): a program under unified memory on one machine, one GPU or several, step after step."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gpusim.base.units import show_bytes
from gpusim.engine.pages import aside, device_memory, hints, page_tables, prefetchers, raster, victims
from gpusim.engine.pages.asked import PythonPolicies
from gpusim.engine.pages.driver_tables import COUNT, CPU, DriverState
from gpusim.engine.pages.foresight import foresee, make_room, sorted_runs
from gpusim.engine.pages.launches import TIMES, Paged, find, in_ns, launched, pages
from gpusim.engine.pages.memory import build, resident_bytes
from gpusim.engine.pages.on_island import OnIslands
from gpusim.engine.pages.traffic import PageTraffic
from gpusim.engine.state import NEVER
from gpusim.machine.driver_parameters import BLOCK_BYTES, UvmError, resolve
from gpusim.machine.platforms import Platform
from gpusim.machine.topology.connections import Connections
from gpusim.policies.registry import SHIPPED, Registry
from gpusim.programs.managed.layout import Span, lay_out
from gpusim.programs.managed.steps import (
    Advise,
    Array,
    Discard,
    Free,
    HostTouch,
    Kernel,
    Prefetch,
    Start,
    Steps,
    Wait,
    on_stream,
    reach,
    title,
)
from gpusim.results.fault_picture import Picture

Watch = Callable[[DriverState, int], None]


@dataclass(frozen=True)
class StepResult:
    """One step of the program: ns, and what it counted at each processor (COUNT[P])."""

    name: str
    start: float
    end: float
    counts: Any
    gpu: int = 0         # of a kernel
    stalled: float = 0.0  # ns for which its warps stood
    sms: int = 0         # multiprocessors that it can use, and how long it takes on them without faults, ns
    own: int = 0
    operator: int = -1   # its number on the island of its GPU

    @property
    def ns(self) -> float:
        return self.end - self.start


@dataclass(frozen=True)
class UvmResult:
    platform: Platform
    steps: list[StepResult]  # in the order of the program; those of several streams and GPUs lie side by side
    counts: Any          # COUNT[P] of the whole run
    spans: dict[str, Span]  # where each allocation lies
    ranges: Any          # RANGE[...] what each of them saw, in the order of `spans`
    batch_sizes: Any     # int64[P, faults] how many batches fetched so many faults
    picture: Picture
    log: Any             # events.LOG[...], when asked for
    events: int          # how many there were; the log holds the first of them
    told: list[str]      # what the driver would have done other than asked
    page_tables: Any     # int64[P, sizes] entries of page tables in the end, of 4 KiB, 64 KiB and 2 MiB
    failed: str = ""     # why the program ended early
    began: float = 0.0   # since when the run is timed; steps and counts are of what came then
    logged_before: int = 0  # events of the log that came before that
    full: str = "device"    # which memory, when it failed
    traffic: PageTraffic | None = None  # what flowed, when a log was kept

    @property
    def ns(self) -> float:
        return max(step.end for step in self.steps) - self.began if self.steps else 0.0


def occupied(steps: Sequence[StepResult]) -> float:
    """ns in which at least one of the steps goes on."""
    total, until = 0.0, -math.inf
    for start, end in sorted((step.start, step.end) for step in steps):
        total += max(end - max(start, until), 0.0)
        until = max(until, end)
    return total


def simulate_uvm(
    arrays: Sequence[Array],
    program: Steps,
    platform: Platform,
    parameters: Mapping[str, int | str] | None = None,
    *,
    gpus: int = 1,
    evict: str = "driver",
    prefetcher: str = "tree",
    migrate: str = "none",
    own: Registry = SHIPPED,
    log: int = 0,
    seed: int = 1,
    watch: Watch | None = None,
    between: Connections | None = None,
) -> UvmResult:
    """Run the steps of `program` over `arrays`.

    own    the policies that `evict`, `prefetcher` and `migrate` may name beside the built-in ones
    log    how many events are kept one by one at most; room that is not needed costs no memory
    watch  called before the first step and after each, with the tables and the number of steps done
    between  what links the GPUs share, as `machine.topology.sharing.shared` has it of them; None: none
    """
    M, told, asked = memory(arrays, program, platform, parameters, gpus=gpus, evict=evict, prefetcher=prefetcher,
                            migrate=migrate, own=own, log=log, seed=seed)  # fmt: skip
    at_work = _AtWork(M, spans := lay_out(arrays), program, platform, told, watch, between)
    at_work.go_through()
    asked.check()
    events = int(M.state["logged"][0])
    picture = raster.of(M, at_work.earlier)
    return UvmResult(
        platform, at_work.steps, M.counts, spans, M.ranges, M.sizes, picture, M.log[:events], events, told,
        page_tables.entries(M), at_work.reason, at_work.began, at_work.logged_before, at_work.where,
        at_work.islands.traffic() if log else None,
    )  # fmt: skip


def memory(
    arrays: Sequence[Array], program: Steps, platform: Platform, parameters: Mapping[str, int | str] | None, *, gpus: int = 1,
    evict: str = "driver", prefetcher: str = "tree", migrate: str = "none", own: Registry = SHIPPED, log: int = 0,
    seed: int = 1,
) -> tuple[DriverState, list[str], PythonPolicies]:  # fmt: skip
    """The driver's tables before a program, what there is to tell of its parameters, and what it asks of policies in Python."""
    asked = PythonPolicies()
    values, told = resolve({**platform.parameters, **(parameters or {})})
    victim, ahead, worth = victims.find(evict, own), prefetchers.find(prefetcher, own), prefetchers.migration(migrate, own)
    fits(arrays, platform)
    device_memory.check(program, {array.name: array for array in arrays}, platform)
    M = build(platform, arrays, gpus, values, log)
    device_memory.take(M, arrays, platform)
    M = prefetchers.choose(victims.choose(M, victim, seed, asked), ahead, worth, asked)
    if values["uvm_perf_access_counter_migration_enable"] > 0 and not M.state["counters"][0]:
        told.append("uvm_perf_access_counter_migration_enable=1: on hosts with pages of 4 KiB nothing moves since release 575")
    if victims.foresees(evict, own) or prefetchers.foresees(prefetcher):
        M = foresee(M, first_run(arrays, program, platform, gpus))
    return M, told, asked


class _AtWork:
    """A program in progress: what is on the clock of its GPUs, and between that step by step what is not."""

    def __init__(
        self, M: DriverState, spans: Mapping[str, Span], program: Steps, platform: Platform, told: list[str],
        watch: Watch | None, between: Connections | None = None,
    ) -> None:  # fmt: skip
        self.M, self.program, self.platform = M, program, platform
        self.watch: Watch = watch or (lambda memory, steps: None)
        self.steps: list[StepResult] = []
        self.earlier = np.zeros(M.raster.shape[:2], np.int64)
        self.reason, self.where, self.began, self.logged_before = "", "device", 0.0, 0
        used(M, program, spans)
        told += hints.told(M, program, spans)
        small = bool(platform.host_memory) and len(M.blocks) * BLOCK_BYTES > platform.host_memory
        self.islands = OnIslands(M, platform, program, spans, self._seen if watch or small else None, between)
        self.ended = 0

    def go_through(self) -> None:
        at = 0
        self.watch(self.M, 0)
        while at < len(self.program) and not self.reason:
            outer = reach(self.program, at, len(self.islands.gpus))
            if outer > at:
                self._kernels(at, outer)
                at = outer
            else:
                self._host(self.program[at])
                at += 1

    def _host(self, step: Any) -> None:
        M = self.M
        if isinstance(step, Start):
            self.earlier = begin(M)
            self.steps.clear()
            self.ended = 0
            self.began, self.logged_before = float(M.state["now"][0]), int(M.state["logged"][0])
            self.watch(M, 0)

    def _kernels(self, first: int, outer: int) -> None:
        M = self.M
        now = self.islands.run(first, outer, float(M.state["now"][0]))
        M.state["now"] = now
        for place in range(first, outer):
            kernel: Any = self.program[place]
            start, end, stalled, counts = self.islands.result(place)
            if start < NEVER:
                if isinstance(kernel, Kernel) and not kernel.accesses:
                    counts["busy"][kernel.gpu] = kernel.ns or 0.0
                    M.counts["busy"][kernel.gpu] += kernel.ns or 0.0
                gpu, needs = kernel.gpu if on_stream(kernel) else 0, self.islands.needs(place)
                number = self.islands.of[place].operator[place]
                self.steps.append(StepResult(title(kernel), start, min(end, now), counts, gpu, stalled, *needs, number))
                if end == NEVER and M.state["failed"][0]:
                    self._fails(kernel)

    def _seen(self, place: int) -> bool:
        """The kernel there has ended; True when the program goes on."""
        self.ended += 1
        self.watch(self.M, self.ended)
        self._is_full(self.program[place])
        return not self.reason

    def _fails(self, step: Any) -> None:
        self.reason = self.reason or f"{title(step)}: GPU memory is full and may not be evicted"

    def _is_full(self, step: Any) -> None:
        if full := host_is_full(self.M, self.platform):
            self.reason, self.where = f"{title(step)}: {full}", "host"


def begin(M: DriverState) -> Any:
    """Count from here on; what the picture showed before."""
    for counters in (M.counts, M.ranges):
        counters[:] = np.zeros((), counters.dtype)
    M.sizes[:] = 0
    M.blocks["served"] = 0  # by the count of replays, which begins again
    return raster.restart(M)


def first_run(arrays: Sequence[Array], program: Steps, platform: Platform, gpus: int) -> Any:
    """What an oracle knows: the program with memory for everything, which brings whole blocks."""
    values, _ = resolve({**platform.parameters, "uvm_perf_thrashing_enable": 0})
    spans = lay_out(arrays)
    everything = sum(s.bytes + 2 * BLOCK_BYTES for s in spans.values())
    M = build(replace(platform, memory=everything), arrays, gpus, values, 0)
    device_memory.take(M, arrays, platform)
    M.state["observes"] = M.state["watches"] = 1
    M = prefetchers.choose(M, "block")
    for step in program:
        if not isinstance(step, Start | Wait):
            M = make_room(M)
            run(M, step, spans, platform)
    return sorted_runs(M)


def run(M: DriverState, step: Any, spans: dict[str, Span], platform: Platform) -> int:
    """A step by itself, ahead of any clock; not 0: it could not be carried out."""
    known(M, step)
    if isinstance(step, Kernel):
        return launch(M, step, spans, platform)
    span = find(step.array, spans, title(step))
    if isinstance(step, HostTouch | Prefetch):
        first, outer = pages(span, step.first, step.count, platform, title(step))
        if isinstance(step, HostTouch):
            return aside.host_touch(M, first, outer, step.write)
        return aside.migrate(M, first, outer, step.to)
    if isinstance(step, Discard):
        aside.discard(M, *pages(span, step.first, step.count, platform, title(step)))
        return 0
    first, outer = pages(span, 0, None, platform, title(step))
    if isinstance(step, Free):
        aside.release(M, first, outer)
        spans[step.array] = replace(span, freed=True)
    else:
        hints.advise(M, step, first, outer)
    return 0


def fits(arrays: Sequence[Array], platform: Platform) -> None:
    """A chip with one memory has nowhere else to put pages, and cudaMalloc no memory but the GPU's."""
    device_memory.fits(arrays, platform)
    n = sum(a.bytes for a in arrays)
    if platform.unified and n > platform.memory:
        room = f"{show_bytes(n)} are allocated, and {platform.name} has {show_bytes(platform.memory)} of memory"
        raise UvmError(f"{room}, where nothing can be moved away")


def host_is_full(M: DriverState, platform: Platform) -> str:
    """What became of pages for which host memory has no room; nothing is said while it has."""
    if not platform.host_memory or platform.unified or len(M.blocks) * BLOCK_BYTES <= platform.host_memory:
        return ""
    n = resident_bytes(M, CPU)
    if n <= platform.host_memory:
        return ""
    return f"{show_bytes(n)} of managed pages lie in host memory, which has {show_bytes(platform.host_memory)}"


def used(M: DriverState, program: Steps, spans: Mapping[str, Span]) -> None:
    """Raises UvmError for a kernel that uses what is not there, or on a GPU that is not."""
    alive = dict(spans)
    for step in program:
        if isinstance(step, Kernel):
            known(M, step)
            for access in step.accesses:
                find(access.array, alive, step.name)
        elif isinstance(step, HostTouch | Prefetch | Advise | Discard | Free):
            known(M, step)
            find(step.array, alive, title(step))
            if isinstance(step, Free):
                alive[step.array] = replace(alive[step.array], freed=True)


def known(M: DriverState, step: Any) -> None:
    """Is there the processor that a step names?"""
    lowest, name = {Kernel: (1, "gpu"), Prefetch: (0, "to"), Advise: (0, "processor")}.get(type(step), (0, ""))
    gpus = int(M.state["processors"][0]) - 1
    if name and not lowest <= getattr(step, name) <= gpus:
        raise UvmError(f"{title(step)}: there is no GPU {getattr(step, name)} among {gpus}")


def launch(M: DriverState, kernel: Kernel, spans: Mapping[str, Span], platform: Platform) -> int:
    """One kernel from here to its end."""
    if not kernel.accesses:
        M.state["now"] += kernel.ns or 0.0
        M.counts["busy"][kernel.gpu] += kernel.ns or 0.0
        return 0
    paged = Paged(M, platform, launched([[kernel]], spans, platform, M), [0], gpu=kernel.gpu, counts=False)
    return aside.run_alone(paged, 0)


def minus(after: Any, before: Any) -> Any:
    """The difference of two tables of counters, every column of which is 64 bits wide."""
    a, b = (np.ascontiguousarray(x).view(np.ndarray).view(np.int64).reshape(len(x), -1) for x in (after, before))
    out, ns = a - b, in_ns(after.dtype)
    out.view(np.float64)[:, ns] = a.view(np.float64)[:, ns] - b.view(np.float64)[:, ns]
    return out.view(after.dtype)[:, 0]


def plus(each: Sequence[Any], rows: int) -> Any:
    """COUNT[rows]: the sum of tables of counters."""
    out = np.zeros((rows, COUNT.itemsize // 8), np.int64)
    for one in each:
        whole = np.ascontiguousarray(one).view(np.ndarray).view(np.int64).reshape(rows, -1)
        ns = out.view(np.float64)[:, TIMES] + whole.view(np.float64)[:, TIMES]
        out += whole
        out.view(np.float64)[:, TIMES] = ns
    return out.view(COUNT)[:, 0]
