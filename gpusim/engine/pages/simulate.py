"""simulate_uvm(): a program under unified memory on one machine, one GPU or several, step after step."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from zlib import crc32

import numpy as np

from gpusim.base.errors import suggest
from gpusim.base.tables import table
from gpusim.base.units import show_bytes
from gpusim.engine.pages import host, page_tables, prefetchers, raster, victims
from gpusim.engine.pages.batches import run_kernel
from gpusim.engine.pages.driver_tables import COUNT, CPU, HMM, DriverState
from gpusim.engine.pages.foresight import foresee, make_room, sorted_runs
from gpusim.engine.pages.frontend import Front
from gpusim.engine.pages.hints import advise
from gpusim.engine.pages.memory import build, front, resident_bytes
from gpusim.engine.pages.sweep import sweeps
from gpusim.machine.driver_parameters import BLOCK_BYTES, UvmError, resolve
from gpusim.machine.platforms import Platform
from gpusim.policies.registry import SHIPPED, Registry
from gpusim.programs.managed.layout import Span, lay_out
from gpusim.programs.managed.pattern import ACCESS, AFFINE, GATHER, LANES, RANDOM, SHAPE
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
    moved_bytes,
)
from gpusim.results.fault_picture import Picture

TIMES = [offset // 8 for kind, offset, *_ in (COUNT.fields or {}).values() if kind == np.float64]  # columns in ns


@dataclass(frozen=True)
class StepResult:
    """One step of the program: ns, and what it counted at each processor (COUNT[P])."""

    name: str
    start: float
    end: float
    counts: Any

    @property
    def ns(self) -> float:
        return self.end - self.start


@dataclass(frozen=True)
class UvmResult:
    platform: Platform
    steps: list[StepResult]
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

    @property
    def ns(self) -> float:
        return self.steps[-1].end - self.began if self.steps else 0.0


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
    watch: Callable[[DriverState, int], None] = lambda memory, steps: None,
) -> UvmResult:
    """Run the steps of `program` over `arrays`.

    own    the policies that `evict`, `prefetcher` and `migrate` may name beside the built-in ones
    log    how many events are kept one by one at most; room that is not needed costs no memory
    watch  called before the first step and after each, with the tables and the number of steps done
    """
    values, told = resolve({**platform.parameters, **(parameters or {})})
    victim, ahead, worth = victims.find(evict, own), prefetchers.find(prefetcher, own), prefetchers.migration(migrate, own)
    fits(arrays, platform)
    M, spans = build(platform, arrays, gpus, values, log), lay_out(arrays)
    M = prefetchers.choose(victims.choose(M, victim, seed), ahead, worth)
    if values["uvm_perf_access_counter_migration_enable"] > 0 and not M.state["counters"][0]:
        told.append("uvm_perf_access_counter_migration_enable=1: on hosts with pages of 4 KiB nothing moves since release 575")
    if victims.foresees(evict, own) or prefetchers.foresees(prefetcher):
        M = foresee(M, first_run(arrays, program, platform, gpus))
    F = front(platform)
    steps: list[StepResult] = []
    earlier = np.zeros(M.raster.shape[:2], np.int64)
    alive, reason, where, began, logged_before = dict(spans), "", "device", 0.0, 0
    watch(M, 0)
    for step in program:
        if isinstance(step, Start):
            earlier = begin(M)
            steps.clear()
            began, logged_before = float(M.state["now"][0]), int(M.state["logged"][0])
            watch(M, 0)
            continue
        start, before = float(M.state["now"][0]), M.counts.copy()
        failed = run(M, F, step, alive, platform, told)
        steps.append(StepResult(title(step), start, float(M.state["now"][0]), minus(M.counts, before)))
        watch(M, len(steps))
        if failed:
            reason = f"{title(step)}: GPU memory is full and may not be evicted"
            break
        if full := host_is_full(M, platform):
            reason, where = f"{title(step)}: {full}", "host"
            break
    events = int(M.state["logged"][0])
    picture = raster.of(M, earlier)
    return UvmResult(
        platform, steps, M.counts, spans, M.ranges, M.sizes, picture, M.log[:events], events, told, page_tables.entries(M),
        reason, began, logged_before, where,
    )  # fmt: skip


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
    M, F = build(replace(platform, memory=everything), arrays, gpus, values, 0), front(platform)
    M.state["observes"] = M.state["watches"] = 1
    M = prefetchers.choose(M, "block")
    for step in program:
        if not isinstance(step, Start):
            M = make_room(M)
            run(M, F, step, spans, platform, [])
    return sorted_runs(M)


def run(M: DriverState, F: Front, step: Any, spans: dict[str, Span], platform: Platform, told: list[str]) -> int:
    known(M, step)
    if isinstance(step, Kernel):
        return launch(M, F, step, spans, platform)
    span = find(step.array, spans, title(step))
    if isinstance(step, HostTouch | Prefetch):
        first, outer = pages(span, step.first, step.count, platform, title(step))
        if isinstance(step, HostTouch):
            return int(host.host_touch(M, first, outer, step.write))
        return int(host.migrate(M, first, outer, step.to))
    if isinstance(step, Discard):
        host.discard(M, *pages(span, step.first, step.count, platform, title(step)))
        return 0
    first, outer = pages(span, 0, None, platform, title(step))
    if isinstance(step, Free):
        host.release(M, first, outer)
        spans[step.array] = replace(span, freed=True)
    else:
        told += [t for t in advise(M, step, first, outer) if t not in told]
    return 0


def pages(span: Span, first: int, count: int | None, platform: Platform, where: str) -> tuple[int, int]:
    """Positions of the pages that hold bytes [first, first + count) of an allocation."""
    count = span.bytes - first if count is None else count
    if first < 0 or count <= 0 or first + count > span.bytes:
        raise UvmError(f"{where}: bytes {first}..{first + count} lie outside of the allocation of {span.bytes} bytes")
    return (span.first + first) // platform.page, -(-(span.first + first + count) // platform.page)


def fits(arrays: Sequence[Array], platform: Platform) -> None:
    """A chip with one memory has nowhere else to put pages."""
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


def find(name: str, spans: Mapping[str, Span], where: str) -> Span:
    if name not in spans:
        raise UvmError(f"{where}: no allocation is called {name!r}", hint=suggest(name, spans))
    if spans[name].freed:
        raise UvmError(f"{where}: segmentation fault at {spans[name].first:#x}, {name!r} has been freed")
    return spans[name]


def known(M: DriverState, step: Any) -> None:
    """Is there the processor that a step names?"""
    lowest, name = {Kernel: (1, "gpu"), Prefetch: (0, "to"), Advise: (0, "processor")}.get(type(step), (0, ""))
    gpus = int(M.state["processors"][0]) - 1
    if name and not lowest <= getattr(step, name) <= gpus:
        raise UvmError(f"{title(step)}: there is no GPU {getattr(step, name)} among {gpus}")


def title(step: Any) -> str:
    if isinstance(step, Kernel):
        return step.name
    if isinstance(step, HostTouch):
        return f"host {'writes' if step.write else 'reads'} {step.array}"
    if isinstance(step, Prefetch | Discard):
        return f"{type(step).__name__.lower()} {step.array}"
    return f"advise {step.array} {step.advice}" if isinstance(step, Advise) else f"free {step.array}"


def launch(M: DriverState, F: Front, kernel: Kernel, spans: Mapping[str, Span], platform: Platform) -> int:
    if not kernel.accesses:
        M.state["now"] += kernel.ns or 0.0
        M.counts["busy"][kernel.gpu] += kernel.ns or 0.0
        return 0
    M.state["launch"] += 1
    for a in kernel.accesses:
        span = find(a.array, spans, kernel.name)
        if M.state["hmm_off"][0] and M.blocks[span.first // BLOCK_BYTES]["kind"] == HMM:
            raise by_malloc(kernel, a.array, span)
    M.state["kernel"] = crc32(f"{kernel.name} {[(a.array, a.start) for a in kernel.accesses]}".encode())
    A, tables = compile_accesses(kernel, spans)
    threads = kernel.block[0] * kernel.block[1]
    warps = -(-threads // LANES)
    if warps > platform.warps:
        said = f"{kernel.name}: a thread block of {threads} threads does not fit an SM of {platform.name}"
        raise UvmError(said, kernel.where)
    ctas = kernel.grid[0] * kernel.grid[1]
    shape = table(1, SHAPE)
    s = shape[0]
    s["grid_x"], s["grid_y"] = kernel.grid
    s["block_x"], s["block_y"] = kernel.block
    s["inner"], s["outer"] = kernel.steps
    steps = kernel.steps[0] * kernel.steps[1]
    ns = kernel.ns
    if ns is None:
        ns = max(moved_bytes(kernel.accesses, kernel) / platform.hbm * 1e9 + platform.gap, platform.submit)
    s["ns"] = ns / (ctas * warps * steps * len(A))
    f = F.state[0]
    f["processor"], f["warps"], f["ctas"], f["next_cta"] = kernel.gpu, warps, ctas, 0
    f["grid_x"] = kernel.grid[0]
    f["threads"], f["steps"], f["accesses"] = threads, steps, len(A)
    resident = min(platform.warps // warps, platform.blocks) * platform.sms_per_utlb
    f["slots"] = resident * warps
    f["sweeps"] = sweeps(kernel) and not M.state["watches"][0] and not (A["base"] % A["bytes"]).any()
    return int(run_kernel(M, F, A, shape, tables))


def by_malloc(kernel: Kernel, array: str, span: Span) -> UvmError:
    """What becomes of a kernel that touches malloc'ed memory where the GPU does not reach it."""
    said = f"{kernel.name}: segmentation fault at {span.first:#x}, '{array}' is malloc'ed memory and HMM is off"
    return UvmError(said, kernel.where, "leave uvm_disable_hmm at 0, or let the array be managed")


def compile_accesses(kernel: Kernel, spans: Mapping[str, Span]) -> tuple[Any, Any]:
    rows: list[tuple[int, ...]] = []
    tables, length = [np.zeros(1, np.int64)], 1
    for a in kernel.accesses:
        span = find(a.array, spans, kernel.name)
        room = span.bytes // a.bytes
        x = {
            "base": span.first, "bytes": a.bytes, "write": a.write, "wraps": a.wraps, "form": AFFINE,
            "elements": room if a.elements is None else a.elements, "waits": a.write if a.waits is None else a.waits,
            "start": a.start, "tx": a.tx, "ty": a.ty, "bx": a.bx, "by": a.by, "in_": a.inner, "out": a.outer,
        }  # fmt: skip
        if x["elements"] > room:
            address = span.first + room * a.bytes
            behind = f"behind the {span.bytes:,} bytes of '{a.array}'"
            raise UvmError(f"{kernel.name}: segmentation fault at {address:#x}, {behind}", kernel.where)
        if a.index is not None:
            if a.index.size and not (int(a.index.min()) >= -1 and int(a.index.max()) < room):
                wrong = int(a.index.max()) if int(a.index.min()) >= -1 else int(a.index.min())
                address = span.first + wrong * a.bytes
                said = f"{kernel.name}: segmentation fault at {address:#x}, index {wrong} of '{a.array}'"
                raise UvmError(said, kernel.where)
            x["form"], x["table"], x["length"] = GATHER, length, len(a.index)
            tables.append(a.index)
            length += len(a.index)
        elif a.random is not None:
            x["form"], x["seed"] = RANDOM, a.random
        rows.append(tuple(x.get(name, 0) for name in ACCESS.names or ()))
    A = table(len(rows), ACCESS)
    A[:] = np.array(rows, ACCESS)
    return A, np.concatenate(tables)


def minus(after: Any, before: Any) -> Any:
    """The difference of two tables of counters, every column of which is 64 bits wide."""
    a, b = (x.view(np.int64).reshape(len(x), -1) for x in (after, before))
    out = a - b
    out.view(np.float64)[:, TIMES] = a.view(np.float64)[:, TIMES] - b.view(np.float64)[:, TIMES]
    return out.view(COUNT)[:, 0]
