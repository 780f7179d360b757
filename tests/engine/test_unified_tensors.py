"""Does a recorded tensor trace run under unified memory as its program would, whose allocator takes managed memory?"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hand_worked import machine

from gpusim.base.errors import GpusimError
from gpusim.base.yaml.find import find
from gpusim.base.yaml.values import policy
from gpusim.engine.pages import launches
from gpusim.engine.pages.run import simulate_unified
from gpusim.engine.pages.settings import DriverSettings
from gpusim.engine.pages.tensors import AllocatorPass, _rows, managed
from gpusim.machine.catalogue import load
from gpusim.machine.kernels.durations import durations
from gpusim.programs.managed.steps import Kernel, Prefetch, Start
from gpusim.results.result import Result
from gpusim.trace.build import TraceBuilder
from gpusim.trace.files import load_trace
from gpusim.trace.trace import COPY_IN
from gpusim.trace.workload import Workload, build

MIB = 1 << 20
CHUNK = 2 * MIB


def written(program: Callable[[TraceBuilder], Any]) -> Workload:
    builder = TraceBuilder("by hand")
    program(builder)
    trace = builder.finish()
    return build(trace, trace.duration)


def sweep(b: TraceBuilder, free: bool = False) -> None:
    """Weights that were there before; activations are written, then the weights are read again."""
    weights = b.alloc(2 * CHUNK)
    activations = b.alloc(2 * CHUNK)
    b.op("write", (), (activations,), duration=1000)
    if free:
        b.free(activations)
    b.op("read", (weights,), (), duration=3000)


def run(work: Workload, chunks: int, settings: DriverSettings | None = None, **changes: float) -> Result:
    profile = machine({"launch.submit": 0.0, "launch.gap": 0.0, **changes})
    chosen = settings or DriverSettings()
    return simulate_unified(work, profile, settings=chosen, capacity_bytes=chunks * CHUNK, place="best_fit")


def test_what_fits_costs_its_first_touch_alone() -> None:
    work = written(sweep)
    assert work.live_peak == 4 * CHUNK
    m = run(work, 4).metrics
    # The weights are on the GPU when the clock starts; each page of the activations is written once, by the warp that faults.
    assert (m["h2d_bytes"], m["d2h_bytes"], m["evictions"], m["refetched_bytes"]) == (0, 0, 0, 0)
    assert 0 < m["gpu_faults"] <= 1024
    assert m["touched_bytes"] == 4 * CHUNK
    assert (m["compute_busy_ns"], m["kernels"], m["stall_launch_ns"]) == (4000, 2, 0)
    assert abs(m["makespan_ns"] - 4000 - m["stall_fault_ns"] - m["stall_migration_ns"]) <= 2
    assert m["makespan_ns"] > 4000 + 2 * 15_000, "first touches of two blocks take at least their share"


def test_what_does_not_fit_leaves_in_whole_chunks_and_comes_back() -> None:
    result = run(written(sweep), 2)
    m = result.metrics
    # Writing the activations throws both chunks of weights out; reading those brings them back and throws the others out.
    assert (m["d2h_bytes"], m["h2d_bytes"], m["evictions"]) == (4 * CHUNK, 2 * CHUNK, 4)
    assert m["refetched_bytes"] == 2 * CHUNK == m["demanded_bytes"] + m["prefetched_bytes"]
    assert m["evicted_clean_bytes"] == 2 * CHUNK, "the weights were not written"
    assert result.timeline["reserved_bytes"].max() == 2 * CHUNK == m["chunks_peak_bytes"]
    assert result.spec["capacity"] == 2 * CHUNK and result.spec["footprint"] == 4 * CHUNK


def test_discarding_what_is_freed_saves_its_way_out() -> None:
    work = written(lambda b: sweep(b, free=True))
    kept, gone = run(work, 2).metrics, run(work, 2, DriverSettings(advice="discard")).metrics
    assert kept["d2h_bytes"] == 4 * CHUNK, "a caching allocator gives nothing back"
    assert gone["d2h_bytes"] == 2 * CHUNK, "only the weights are worth a copy"
    assert gone["h2d_bytes"] == kept["h2d_bytes"] == 2 * CHUNK
    assert gone["makespan_ns"] < kept["makespan_ns"]


def test_prefetching_what_a_kernel_touches_leaves_no_faults() -> None:
    work = written(sweep)
    asked = run(work, 2, DriverSettings(advice="prefetch")).metrics
    assert asked["gpu_faults"] == 0 and asked["explicit_bytes"] == 2 * CHUNK == asked["h2d_bytes"]
    assert asked["makespan_ns"] < run(work, 2).metrics["makespan_ns"]


def test_a_kernel_takes_no_less_than_its_launch() -> None:
    work = written(sweep)
    m = run(work, 4, **{"launch.submit": 2500.0, "launch.gap": 700.0}).metrics
    assert m["stall_launch_ns"] == 2500 + 700, "the first waits for the host, the second, submitted meanwhile, for the gap"
    assert m["compute_busy_ns"] == 4000


def test_copies_of_the_program_are_counted_as_its_own() -> None:
    def program(b: TraceBuilder) -> None:
        x = b.alloc(CHUNK)
        b.op("copy", (), (x,), duration=500, read_bytes=CHUNK, activity=COPY_IN)
        b.op("read", (x,), (), duration=1000)

    m = run(written(program), 4).metrics
    assert (m["program_h2d_bytes"], m["h2d_bytes"]) == (CHUNK, 0), "what a copy wrote need not move"
    assert (m["program_transfer_ns"], m["compute_busy_ns"], m["kernels"]) == (500, 1000, 1)
    rate = machine({}).link.h2d.value
    assert m["h2d_busy_share"] == pytest.approx(CHUNK / rate * 1e9 / m["makespan_ns"], rel=0.1), "they cross the link, too"


def test_streams_with_kernels_share_the_makespan() -> None:
    def program(b: TraceBuilder) -> None:
        x = b.alloc(CHUNK)
        for stream in (0, 1):
            b.op("work", (), (x,), duration=1000, stream=stream)

    m = run(written(program), 4).metrics
    assert m["compute_busy_ns"] == 2000 < m["makespan_ns"]
    assert m["compute_idle_share"] == 1 - 2000 / (2 * m["makespan_ns"]), "as without unified memory: of the average stream"


@pytest.fixture(scope="module")
def inference() -> Workload:
    trace = load_trace(find("trace", "gpt-medium-infer"))
    return build(trace, durations(trace, load("l4"))[0])


@pytest.mark.slow
@pytest.mark.parametrize("place", ["pytorch", "best_fit", "rmm_pool", "pytorch(conf=expandable_segments:True)"])
def test_tensors_lie_where_their_allocator_puts_them(inference: Workload, place: str) -> None:
    heap = AllocatorPass(inference, policy(place))
    size = {array.name: array.bytes for array in heap.arrays}
    t = inference.trace
    live: dict[tuple[str, int], int] = {}
    for tensor in range(t.tensors):
        assert sum(part for _, _, part in heap.pieces[tensor]) == t.size[tensor]
        assert all(offset + part <= size[name] for name, offset, part in heap.pieces[tensor])
    for kind, tensor in zip(t.kind.tolist(), t.arg.tolist(), strict=True):
        for name, offset, part in heap.pieces[tensor] if kind in (0, 1) else ():
            if kind == 0:
                assert not any(n == name and o < offset + part and offset < o + p for (n, o), p in live.items())
                live[name, offset] = part
            else:
                assert live.pop((name, offset)) == part


@pytest.mark.slow
def test_kernels_follow_the_trace(inference: Workload) -> None:
    program = managed(inference, load("l4"), "best_fit")
    begun = next(i for i, step in enumerate(program.steps) if isinstance(step, Start))
    assert all(isinstance(step, Prefetch) for step in program.steps[:begun])
    data = inference.trace.size[inference.has_data.astype(bool)].sum()
    assert sum(step.count or 0 for step in program.steps[:begun] if isinstance(step, Prefetch)) >= data
    kernels = [step for step in program.steps[begun:] if isinstance(step, Kernel)]
    assert [k.name for k in kernels] == [inference.trace.op_names[op] for op in inference.trace.op]
    assert sum(k.ns or 0 for k in kernels) >= inference.duration.sum()


def test_kernels_over_lists_go_through_them_tensor_by_tensor() -> None:
    size = np.array([100, 200, 300] * 6 + [50] * 20)
    parameters, gradients, moments = [0, 1, 2], [3, 4, 5], [6, 7, 8]
    lists = parameters + gradients + moments + [9, 10, 11] + [12, 13, 14]
    assert _rows(lists, parameters, size) == [([i, i + 3, i + 6, i + 9, i + 12], [i]) for i in range(3)]
    assert _rows([0, 1], [2], size) == [([0, 1], [2])]
    # Lists that do not repeat: each tensor alone.
    assert _rows(list(range(17)), [20], size)[:2] == [([0], [20]), ([1], [])]


@pytest.mark.slow
def test_thread_blocks_that_find_their_pages_may_run_through_at_once(
    inference: Workload, monkeypatch: pytest.MonkeyPatch
) -> None:
    def both(**more: Any) -> list[dict[str, int | float]]:
        found = []
        for allowed in (True, False):
            with monkeypatch.context() as patched:
                if not allowed:
                    patched.setattr(launches, "sweeps", lambda kernel: False)
                found.append(simulate_unified(inference, load("l4"), place="best_fit", **more).metrics)
        return found

    swept, walked = both()
    same = ("touches", "touched_bytes", "h2d_bytes", "d2h_bytes", "evictions", "kernels")
    assert [swept.get(name) for name in same] == [walked.get(name) for name in same]
    assert swept["compute_busy_ns"] == pytest.approx(walked["compute_busy_ns"], abs=4)  # stretches end at whole ns
    # Which uTLB a thread block begins on differs, and with it what batches contain.
    assert swept["gpu_faults"] == pytest.approx(walked["gpu_faults"], rel=1e-2)
    assert swept["makespan_ns"] == pytest.approx(walked["makespan_ns"], rel=1e-2)
    swept, walked = both(capacity_bytes=inference.live_peak * 2 // 3)
    assert swept["touched_bytes"] == walked["touched_bytes"]
    assert swept["h2d_bytes"] == pytest.approx(walked["h2d_bytes"], rel=0.02)
    assert swept["makespan_ns"] == pytest.approx(walked["makespan_ns"], rel=0.02)


def test_a_trace_without_kernels_is_refused() -> None:
    trace = load_trace(find("trace", "gpt-medium-infer-snapshot"))
    with pytest.raises(GpusimError, match="has no kernels"):
        managed(build(trace, trace.duration), load("l4"), "best_fit")
