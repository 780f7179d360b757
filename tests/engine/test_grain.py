"""Is a program in chunks the same program, byte for byte, and may a part of a tensor be there?"""

import numpy as np
import pytest

from gpusim import referee
from gpusim.base.errors import GpusimError, UnitError
from gpusim.engine.run.bounds import swap_in_bound
from gpusim.engine.run.simulate import simulate
from gpusim.machine import catalogue
from gpusim.machine.kernels.durations import durations
from gpusim.programs.generate.synth import random_program, training
from gpusim.trace import grain
from gpusim.trace.build import make_trace
from gpusim.trace.check import check_trace
from gpusim.trace.files import load_trace
from gpusim.trace.trace import ALLOC, FREE, OP
from gpusim.trace.workload import build

pytestmark = pytest.mark.agreement

KIB, MIB = 2**10, 2**20


def workload(trace):
    return build(trace, np.maximum(trace.duration, 1000))


def small():
    """A: 5 KiB (with data), B: 2 KiB; operator 0 reads A and writes B, B leaves, operator 1 reads A."""
    return make_trace(
        "small",
        {
            "size": [5 * KIB, 2 * KIB, 0], "kind": [ALLOC, ALLOC, ALLOC, OP, FREE, OP], "arg": [0, 1, 2, 0, 1, 1],
            "op": [0, 0], "duration": [10, 20], "read_start": [0, 1, 2], "read_id": [0, 0],
            "write_start": [0, 1, 1], "write_id": [1],
        },
        {"op_names": ("f",)},
    )  # fmt: skip


@pytest.mark.hand_worked
def test_what_do_tensors_become_by_hand():
    chunks = grain.chunked(workload(small()), 2 * KIB)
    t = chunks.work.trace
    assert list(t.size) == [2 * KIB, 2 * KIB, KIB, 2 * KIB, 0], "the last chunk holds the rest; nothing stays nothing"
    assert list(chunks.first) == [0, 3, 4, 5]
    assert [chunks.tensor_of(c) for c in (-1, 0, 1, 2, 3, 4)] == [-1, 0, 0, 0, 1, 2]
    assert list(t.kind) == [ALLOC] * 5 + [OP, FREE, OP]
    assert list(t.arg) == [0, 1, 2, 3, 4, 0, 3, 1]
    assert list(chunks.work.acc_start) == [0, 4, 7]
    assert list(chunks.work.acc_unit) == [0, 1, 2, 3, 0, 1, 2]
    assert list(chunks.work.acc_write) == [0, 0, 0, 1, 0, 0, 0]
    assert [a.tolist() for a in chunks.of(np.array([1, 0]))] == [[0, 1, 1, 1], [3, 0, 1, 2]]
    assert t.meta["grain"] == "2 KiB"


@pytest.mark.slow
@pytest.mark.parametrize("size", [512, 4 * KIB, 2 * MIB])
@pytest.mark.parametrize("seed", range(4))
def test_is_a_program_in_chunks_the_same_program(seed, size):
    trace = random_program(seed=seed) if seed else training(steps=2, layers=2)
    work = workload(trace)
    chunks = grain.chunked(work, size)
    t, again = chunks.work.trace, build(chunks.work.trace, work.duration)
    check_trace(t)
    for name in ("acc_start", "acc_unit", "acc_write", "acc_next", "first", "has_data", "clock"):
        np.testing.assert_array_equal(getattr(chunks.work, name), getattr(again, name))
    assert t.size.sum() == trace.size.sum()
    assert t.size.max() <= size
    np.testing.assert_array_equal(np.add.reduceat(t.size, chunks.first[:-1]), trace.size)
    assert chunks.work.live_peak == work.live_peak, "to 512 bytes each, as before"
    of_op = np.add.reduceat(np.append(trace.size[work.acc_unit], 0), np.minimum(work.acc_start[:-1], len(work.acc_unit)))
    chunked = chunks.work
    of_chunks = np.add.reduceat(
        np.append(t.size[chunked.acc_unit], 0), np.minimum(chunked.acc_start[:-1], len(chunked.acc_unit))
    )
    some = np.diff(work.acc_start) > 0
    np.testing.assert_array_equal(of_op[some], of_chunks[some])
    np.testing.assert_array_equal(t.size[np.sort(t.arg[t.kind == ALLOC])], t.size)


def test_does_a_program_without_tensors_stay_as_it_is():
    columns = {"size": [], "kind": [OP, OP], "arg": [0, 1], "op": [0, 0], "duration": [3, 4]}
    trace = make_trace("none", columns, {"op_names": ["a"]})
    cut = grain.cut(trace, 2 << 20)
    assert cut.tensors == 0 and list(cut.kind) == [OP, OP] and list(cut.arg) == [0, 1] and cut.meta["grain"] == "2 MiB"
    assert grain.chunked(build(trace, trace.duration), 4096).work.trace.ops == 2


def test_is_a_chunk_as_large_as_every_tensor_no_change():
    trace = training(steps=1, layers=2)
    work = workload(trace)
    whole = grain.chunked(work, int(-(-trace.size.max() // 512) * 512))
    np.testing.assert_array_equal(whole.work.trace.size, trace.size)
    np.testing.assert_array_equal(whole.work.trace.arg, trace.arg)
    assert whole is grain.chunked(work, int(-(-trace.size.max() // 512) * 512)), "found once"


def test_may_a_part_of_a_tensor_stay():
    """8 KiB of memory, A of 6 KiB and B of 4 KiB in turns: whole tensors move, of chunks only what does not fit."""
    trace = make_trace(
        "turns",
        {
            "size": [6 * KIB, 4 * KIB], "kind": [ALLOC, ALLOC, OP, OP, OP], "arg": [0, 1, 0, 1, 2], "op": [0, 0, 0],
            "duration": [10, 10, 10], "read_start": [0, 1, 2, 3], "read_id": [0, 1, 0], "write_start": [0, 0, 0, 0],
        },
        {"op_names": ("f",)},
    )  # fmt: skip
    work, machine = workload(trace), catalogue.load("t4")
    runs = {
        size: simulate(trace, machine, place="best_fit", evict="belady", capacity_bytes=8 * KIB, work=work, grain=size)
        for size in (0, 2 * KIB)
    }
    assert runs[0].metrics["h2d_bytes"] == (6 + 4 + 6) * KIB, "B drives A out before either is used"
    assert runs[2 * KIB].metrics["h2d_bytes"] == (2 + 2) * KIB, "the half of B that left, then the third of A that made room"


@pytest.mark.slow
def test_do_pages_of_a_recording_run_and_move_no_more_than_tensors():
    trace, machine = load_trace("traces/resnet50-train.npz"), catalogue.load("t4")
    work = build(trace, durations(trace, machine)[0])
    capacity = int(0.8 * work.live_peak)
    whole = simulate(trace, machine, place="best_fit", evict="belady", capacity_bytes=capacity, work=work)
    parts = simulate(
        trace, machine, place="best_fit", evict="belady", capacity_bytes=capacity, work=work, log=True, grain=2 * MIB
    )
    assert parts.finished
    assert parts.spec["grain"] == "2 MiB"
    assert parts.spec["trace_hash"] == trace.content_hash
    assert referee.check(parts, trace).ok
    assert parts.metrics["h2d_bytes"] < whole.metrics["h2d_bytes"]
    bound = swap_in_bound(work, capacity)
    assert swap_in_bound(grain.chunked(work, 2 * MIB).work, capacity) == bound <= parts.metrics["h2d_bytes"]


@pytest.mark.parametrize(("text", "size"), [("tensor", 0), (" 2 MiB ", 2 * MIB), ("4 KiB", 4096), ("512 B", 512)])
def test_is_a_grain_read_and_written(text, size):
    assert grain.parse(text) == size
    assert grain.parse(grain.write(size)) == size


@pytest.mark.parametrize("text", ["0 B", "100 B", "2 MB", "2", "2 Mib", "page"])
def test_is_what_is_no_grain_refused(text):
    with pytest.raises(UnitError):
        grain.parse(text)


def test_is_a_chunk_larger_than_the_memory_refused():
    with pytest.raises(GpusimError, match="a chunk of 16 KiB is larger than the 8 KiB of memory"):
        simulate(small(), catalogue.load("t4"), capacity_bytes=8 * KIB, grain=16 * KIB)


def test_does_a_failure_name_the_tensor_and_not_its_chunk():
    failed = simulate(small(), catalogue.load("t4"), place="best_fit", evict="none", capacity_bytes=6 * KIB, grain=2 * KIB)
    assert (failed.outcome, failed.failure["tensor"]) == ("oom", 1)


def test_does_a_plan_for_a_tensor_hold_for_its_chunks():
    """A is evicted before operator 1, which reads it: it all comes back, chunk by chunk."""
    from gpusim import policy
    from gpusim.policies.planning import EVICT, Schedule

    trace = make_trace(
        "planned",
        {
            "size": [6 * KIB, 512], "kind": [ALLOC, ALLOC, OP, OP, OP], "arg": [0, 1, 0, 1, 2], "op": [0, 0, 0],
            "duration": [10, 10, 10], "read_start": [0, 1, 2, 3], "read_id": [0, 1, 0], "write_start": [0, 0, 0, 0],
        },
        {"op_names": ("f",)},
    )  # fmt: skip

    @policy.plan
    def away(view):
        """A leaves while B is used."""
        assert view.work.trace.tensors == 2
        return Schedule.of([(1, EVICT, 0)])

    machine = catalogue.load("t4")
    result = simulate(trace, machine, capacity_bytes=64 * KIB, place="best_fit", plan=away, grain=2 * KIB, log=True)
    assert (result.metrics["plan_evictions"], result.metrics["swap_ins"], result.metrics["h2d_bytes"]) == (3, 3, 6 * KIB)
    assert referee.check(result, trace).ok


def test_are_too_many_chunks_refused():
    with pytest.raises(GpusimError, match="take a larger grain"):
        grain.chunked(workload(load_trace("traces/gpt2-small-train.npz")), 512)
