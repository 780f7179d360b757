"""What is true of unified memory after every step, whatever a program does: random programs on small machines."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from plain_python import interpreted
from unified_by_hand import BLOCK, LINK, TINY, in_turn

from gpusim.engine.pages.driver_tables import (
    ATS,
    COUNTER,
    CPU,
    DEMAND,
    EXPLICIT,
    FREE,
    HELD,
    LISTS,
    MAPPED,
    NONE,
    PREFETCH,
    PREFETCHED,
    RESIDENT,
    SPLIT,
    THRASHING,
    WRITABLE,
    DriverState,
)  # fmt: skip
from gpusim.engine.pages.prefetchers import PREFETCHERS
from gpusim.engine.pages.run import _for_referee
from gpusim.engine.pages.simulate import UvmResult, simulate_uvm
from gpusim.engine.pages.victims import EVICT
from gpusim.programs.managed.layout import lay_out
from gpusim.programs.managed.steps import (
    ADVICE,
    Access,
    Advise,
    Array,
    Discard,
    Free,
    HostTouch,
    Kernel,
    ManagedProgram,
    Prefetch,
)
from gpusim.referee import pages as referee
from gpusim.results import page_log
from gpusim.results.result import FINISHED, Result

pytestmark = pytest.mark.conformance

PCIE = replace(TINY, memory=3 * BLOCK, warps=4)
MACHINES = {
    "pcie": PCIE,
    "peers": replace(PCIE, peer_rate=4e9),
    "coherent": replace(PCIE, coherent=True, ats=True, peer_rate=4e9, page=65536, memory=4 * BLOCK),
    "power": replace(PCIE, coherent=True, page=65536, link=replace(LINK, remote_request=5.0)),
}
ARRAYS = [
    Array("a", 3 * BLOCK), Array("b", BLOCK + 300_000, 100_000), Array("c", 200_000, 70_000), Array("d", 40_000),
    Array("m", BLOCK + 150_000, kind="system"),
]  # fmt: skip
EVENTS = 1 << 17


def masks(M: DriverState, first: int, rows: int) -> Any:
    """bool[rows, blocks, 512]"""
    n = len(M.blocks)
    bits = M.bits[first : first + rows * n].view(np.uint8)
    return np.unpackbits(bits, axis=-1, bitorder="little").view(bool).reshape(rows, n, 512)


@dataclass
class Planes:
    """The masks of all blocks, read afresh."""

    resident: Any
    mapped: Any
    writable: Any
    shared: Any

    @classmethod
    def of(cls, M: DriverState) -> Planes:
        processors, n = int(M.state["processors"][0]), len(M.blocks)
        own = masks(M, 0, 3 * processors).reshape(processors, 3, n, 512)
        return cls(own[:, RESIDENT], own[:, MAPPED], own[:, WRITABLE], masks(M, int(M.state["shared"][0]), 8))


class Watch:
    """Called after each step: what has to be true of the tables."""

    def __init__(self, program: list[Any]) -> None:
        self.program = program
        self.done: Any = None
        self.replayed = 0
        self.now = 0.0
        self.stale: Any = None
        self.touched: Any = None

    def __call__(self, M: DriverState, steps: int) -> None:
        x = Planes.of(M)
        if self.done is None:
            self.done = np.zeros_like(x.resident)
            self.touched = np.zeros(x.resident.shape[1:], bool)
            self.stale = np.zeros_like(x.resident)  # does a processor have, or had it, an old version?
        step = self.program[steps - 1] if steps else None
        try:
            self.permissions(M, x)
            self.memory(M, x)
            self.events(M, x)
            self.contents(M, x, step)
            self.counts(M, x)
        except AssertionError as e:
            raise AssertionError(f"after step {steps}, {step}: {e}") from e

    def permissions(self, M: DriverState, x: Planes) -> None:
        copies = x.resident.sum(axis=0)
        inside = np.arange(512) < M.blocks["pages"][:, None]
        for name, plane in (("resident", x.resident), ("mapped", x.mapped), ("writable", x.writable)):
            assert not (plane & ~inside).any(), f"{name} beyond the block"
        assert not (x.writable & ~x.mapped).any(), "writable, but not mapped"
        wrong = np.argwhere(x.writable.any(axis=0) & (copies != 1))[:3].tolist()
        assert not wrong, f"writable, with other than one copy: {wrong}"
        near = M.gpus["peer_byte"] > 0
        for p in range(len(x.mapped)):
            reach = [q for q in range(len(x.mapped))
                     if q in (p, CPU) or bool(M.gpus["coherent"][max(p, q)]) or (p != CPU and near[p])]  # fmt: skip
            lost = x.mapped[p] & ~x.resident[reach].any(axis=0)
            assert not lost.any(), f"{p} maps what it cannot reach: {np.argwhere(lost)[:3].tolist()}"
        doubled = copies > 1
        assert not (doubled & (M.blocks["read_mostly"] == 0)[:, None]).any(), "two copies of what is not mostly read"

    def memory(self, M: DriverState, x: Planes) -> None:
        page, per_block = int(M.state["page_bytes"][0]), int(M.state["per_block"][0])
        assert not M.roots["locked"].any(), "a chunk is locked"
        for g in range(1, len(x.resident)):
            gpu, n = M.gpus[g], x.resident[g].sum(axis=1)
            assert n.sum() * page <= gpu["roots"] * BLOCK, f"GPU {g} holds more than its memory"
            roots = M.roots[gpu["first_root"] : gpu["first_root"] + gpu["roots"]]
            assert sum(gpu["length"]) == len(roots), "a chunk is in no list"
            for which in range(LISTS):
                assert gpu["length"][which] == (roots["list"] == which).sum(), "a list's length is wrong"
            system = M.blocks["kind"] == ATS
            assert n[system].sum() == gpu["system_pages"], "system memory is miscounted"
            assert gpu["length"][HELD] == -(-int(gpu["system_pages"]) // per_block), "chunks for system memory"
            assert not (roots["owner"][roots["list"] == FREE] != NONE).any(), "a free chunk is owned"
            if M.state["pieces"][0]:
                assert gpu["pieces"] <= gpu["roots"] * 32
                continue
            for b, block in enumerate(M.blocks):
                if block["kind"] == ATS:
                    continue
                if block["partial"] == NONE:
                    r = M.chunk[g, b]
                    assert r == NONE or M.roots["owner"][r] == b, "a chunk is another's"
                    assert n[b] == 0 or r != NONE, "pages without a chunk"
                else:
                    frames = M.frames[g - 1, block["partial"]]
                    assert (frames[x.resident[g, b]] != NONE).all(), "pages without a frame"
                    held = frames[frames != NONE]
                    assert (M.holder[held] == b + 1).all() and len(set(held.tolist())) == len(held), "a frame is another's"
                    assert (M.roots["owner"][held // per_block] == SPLIT).all(), "a frame of a chunk that is not shared"
            held = np.bincount(M.holder.nonzero()[0] // per_block, minlength=len(M.roots))
            assert (held == M.roots["held"]).all(), "frames are miscounted"

    def events(self, M: DriverState, x: Planes) -> None:
        """Residency is what the log says: what came, less what left."""
        logged = int(M.state["logged"][0])
        assert logged <= EVENTS
        log = M.log[self.replayed : logged]
        self.replayed = logged
        log = log[(log["kind"] >= page_log.COPY) & (log["kind"] <= page_log.GONE)]
        rows = np.unpackbits(np.ascontiguousarray(log["mask"]).view(np.uint8), axis=-1, bitorder="little").view(bool)
        for r, mask in zip(log, rows, strict=True):
            here = self.done[r["processor"], r["block"]]
            if r["kind"] == page_log.GONE:
                here &= ~mask
            else:
                here |= mask
            self.versions(r["kind"], int(r["processor"]), int(r["source"]), int(r["block"]), mask)
        assert (self.done == x.resident).all(), "the log says other than the tables"

    def versions(self, kind: int, p: int, source: int, b: int, mask: Any) -> None:
        """What the host keeps without a copy has not been written since it left."""
        if kind == page_log.COPY:
            self.stale[p, b, mask] = self.stale[source, b, mask]
        elif kind == page_log.FILL:
            self.stale[:, b, mask] = False  # zeroes are zeroes everywhere
        elif kind == page_log.KEEP:
            assert not self.stale[p, b, mask].any(), f"{p} keeps what others have written"

    def contents(self, M: DriverState, x: Planes, step: Any) -> None:
        spans, page, per_block = lay_out(ARRAYS), int(M.state["page_bytes"][0]), int(M.state["per_block"][0])
        flat = np.zeros(len(M.blocks) * per_block, bool)
        wrote = np.zeros_like(flat)
        accesses = step.accesses if isinstance(step, Kernel) else [step] if isinstance(step, HostTouch) else []
        for a in accesses:
            if isinstance(a, HostTouch):
                first = (spans[a.array].first + a.first) // page
                outer = -(-(spans[a.array].first + a.first + a.count) // page)
                at = np.arange(first, outer)
            else:
                index = np.arange(step.grid[0]) if a.index is None else a.index
                at = (spans[a.array].first + index * a.bytes) // page
            flat[at] = True
            wrote[at] |= a.write
        dropped = np.zeros_like(flat)
        if isinstance(step, Discard | Free):
            first, count = (step.first, step.count) if isinstance(step, Discard) else (0, spans[step.array].bytes)
            begin = spans[step.array].first + first
            dropped[begin // page : -(-(begin + count) // page)] = True
        for b, block in enumerate(M.blocks):
            window = slice(b * per_block + block["offset"], b * per_block + block["offset"] + block["pages"])
            self.touched[b, : block["pages"]] |= flat[window]
            pages = np.flatnonzero(wrote[window])
            self.stale[:, b, pages] = ~x.resident[:, b, pages]
            self.touched[b, : block["pages"]] &= ~dropped[window]
        assert not (self.touched & ~x.resident.any(axis=0)).any(), "touched, and nowhere"
        ahead = x.shared[PREFETCHED] & ~x.resident[1:].any(axis=0)
        assert not ahead.any(), "prefetched, and on no GPU"
        thrashing = x.shared[THRASHING].any(axis=1)
        assert not (thrashing & (M.blocks["tracked"] == 0)).any(), "thrashing, and not watched"
        assert M.state["tracked"][0] == (M.blocks["tracked"] != 0).sum(), "watched blocks are miscounted"

    def counts(self, M: DriverState, x: Planes) -> None:
        """Allocations saw what processors did."""
        gpus, cpu, seen = M.counts[1:], M.counts[CPU], M.ranges
        for name in ("wasted", "refetched", "zeroed", "remote_bytes", "notices", "left_clean"):
            assert gpus[name].sum() == seen[name].sum(), name
        for name in ("throttled", "pinned"):
            assert M.counts[name].sum() == seen[name].sum(), name
        assert (gpus["came"].sum(axis=0) == seen["came"].sum(axis=0)).all(), "came"
        assert cpu["came"].sum() + gpus["left"].sum() == seen["went"].sum(), "went"
        assert gpus["faults"].sum() == seen["gpu_reads"].sum() + seen["gpu_writes"].sum(), "faults of GPUs"
        assert cpu["faults"] == seen["cpu_reads"].sum() + seen["cpu_writes"].sum(), "faults of the CPU"
        assert (gpus["left_clean"] <= gpus["left"]).all(), "left clean"
        assert (gpus["fetched"] == gpus["duplicates"] + gpus["satisfied"] + gpus["throttled"] + gpus["faults"]).all(), "fetched"
        assert M.state["now"][0] >= self.now, "time goes back"
        self.now = float(M.state["now"][0])


def draw(seed: int) -> tuple[str, dict[str, Any], list[Any]]:
    """A machine, settings, and a program."""
    rng = np.random.default_rng(seed)
    machine = str(rng.choice(list(MACHINES)))
    parameters = {
        "uvm_perf_prefetch_threshold": int(rng.choice([0, 25, 51, 51, 100])),
        "uvm_perf_fault_replay_policy": int(rng.choice([0, 1, 2, 2, 3])),
        "uvm_perf_fault_batch_count": int(rng.choice([4, 32, 256])),
        "uvm_perf_access_counter_migration_enable": int(rng.choice([-1, 0, 1])),
        "uvm_perf_access_counter_threshold": int(rng.choice([1, 8, 256])),
        "uvm_perf_map_remote_on_eviction": int(rng.integers(2)),
        "uvm_perf_thrashing_threshold": int(rng.choice([1, 2, 3])),
        "uvm_perf_thrashing_pin_threshold": int(rng.choice([1, 2, 10])),
        "uvm_perf_thrashing_lapse_usec": int(rng.choice([500, 5000])),
        "uvm_perf_thrashing_pin": int(rng.choice([0, 1, 300])),
        "uvm_perf_thrashing_epoch": int(rng.choice([1, 2000])),
        "uvm_fault_force_sysmem": int(rng.random() < 0.05),
    }
    evict = [*EVICT, "clean_drop", "clean_drop"]
    settings = {
        "parameters": parameters, "evict": str(rng.choice(evict)), "prefetcher": str(rng.choice(PREFETCHERS)),
        "seed": seed, "gpus": 2,
    }  # fmt: skip
    program = []
    for _ in range(int(rng.integers(6, 14))):
        array = ARRAYS[int(rng.integers(len(ARRAYS)))]
        kind = rng.random()
        first = int(rng.integers(array.bytes - 1))
        part = {"first": first, "count": int(rng.integers(1, array.bytes - first + 1))}
        if rng.random() < 0.4:
            part = {"first": 0, "count": array.bytes}
        if kind < 0.15:
            program.append(HostTouch(array.name, bool(rng.integers(2)), **part))
        elif kind < 0.5:
            program.append(touches(rng))
        elif kind < 0.65:
            program.append(Prefetch(array.name, int(rng.integers(3)), **part))
        elif kind < 0.72:
            program.append(Discard(array.name, **part))
        elif kind < 0.77:
            size = 65536 if array.bytes >= 65536 and rng.random() < 0.5 else 4096
            access = Access(array.name, bool(rng.integers(2)), bytes=size, bx=1)
            grid, gpu = (array.bytes // size, 1), int(rng.integers(1, 3))
            program.append(Kernel("sweep", [access], grid, (1, 1), ns=0.0, gpu=gpu))
        else:
            program.append(Advise(array.name, str(rng.choice(ADVICE)), int(rng.integers(3))))
    return machine, settings, program


def touches(rng: Any) -> Kernel:
    """Threads that touch places of one or two arrays, crowded or far and wide."""
    threads = int(rng.choice([1, 8, 64, 200]))
    accesses = []
    for array in rng.choice(ARRAYS, int(rng.integers(1, 3)), replace=False):
        elements = array.bytes // 4
        first = int(rng.integers(elements))
        width = int(rng.choice([20_000, elements]))
        index = np.minimum(first + rng.integers(0, width, threads), elements - 1)
        accesses.append(Access(array.name, bool(rng.random() < 0.6), tx=1, bx=32, index=index))
    ns, gpu = float(rng.choice([0, 1e6])), int(rng.integers(1, 3))
    return Kernel("touch", accesses, (-(-threads // 32), 1), (32, 1), ns=ns, gpu=gpu)


def simulate(seed: int) -> tuple[UvmResult, dict[str, Any], list[Any]]:
    machine, settings, program = draw(seed)
    ran = simulate_uvm(ARRAYS, in_turn(program), MACHINES[machine], log=EVENTS, watch=Watch(program), **settings)
    return ran, settings, program


def fingerprint(seed: int) -> list[Any]:
    """How a run went, in a few numbers."""
    ran = simulate(seed)[0]
    return [ran.failed, round(ran.ns), ran.events, zlib.crc32(ran.counts.tobytes()), zlib.crc32(ran.log["mask"].tobytes())]


def result(ran: UvmResult, settings: dict[str, Any], program: list[Any]) -> Result:
    """With the metrics that the referee recomputes, of both GPUs."""
    gpus, cpu, page = ran.counts[1:], ran.counts[CPU], ran.platform.page
    came = gpus["came"].sum(axis=0)
    left = int(gpus["left"].sum())
    metrics = {
        "gpu_faults": gpus["faults"].sum(), "cpu_faults": cpu["faults"], "fault_batches": gpus["batches"].sum(),
        "demanded_bytes": came[DEMAND] * page, "prefetched_bytes": came[PREFETCH] * page,
        "explicit_bytes": came[EXPLICIT] * page, "counter_bytes": came[COUNTER] * page,
        "h2d_bytes": came.sum() * page, "d2h_bytes": (cpu["came"].sum() + left) * page, "evicted_bytes": left * page,
    }  # fmt: skip
    log = {name: ran.log[name].copy() for name in ran.log.dtype.names}
    spec = {"paging": _for_referee(ManagedProgram("random", ARRAYS, program), ran, settings["evict"])}
    return Result(spec, FINISHED, {name: int(value) for name, value in metrics.items()}, pages=log)


@pytest.mark.parametrize("seed", [*range(28), 200, 1012, 1170, 5001])
def test_what_is_true_after_every_step(seed: int) -> None:
    ran, settings, program = simulate(seed)
    assert not ran.failed
    report = referee.check(result(ran, settings, program))
    assert report.ok, str(report)


@pytest.mark.agreement
@pytest.mark.slow
def test_compiled_and_interpreted_do_the_same() -> None:
    seeds = [2, 5, 11]
    assert interpreted("test_uvm_invariants", f"[t.fingerprint(seed) for seed in {seeds}]") == [fingerprint(s) for s in seeds]
