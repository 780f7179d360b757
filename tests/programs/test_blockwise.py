"""Generations block by block: bytes and order by hand, and times to the nanosecond on a machine of round numbers."""

from __future__ import annotations

import numpy as np
import pytest

import gpusim
from gpusim.base.errors import GpusimError
from gpusim.machine.kernels.durations import durations
from gpusim.programs.blockwise import Decoder, GenerationLoad, Placement, generation
from gpusim.trace.trace import COPY_IN, COPY_OUT, HOST_WORK, KERNEL, NVME_READ

TINY = Decoder(layers=2, width=64, heads=4, kv_heads=4, hidden=256, vocabulary=1000)
ATTENTION, MLP = 4 * 64 * 64 * 2, 2 * 64 * 256 * 2  # bytes of a block's parts


def moved(trace, activity: int) -> list[int]:
    return trace.read_bytes[trace.activity == activity].tolist()


def time(trace, machine: str = "t4") -> int:
    return gpusim.simulate(trace, on=machine, bounds=False).metrics["makespan_ns"]


def alone(trace, machine: str = "t4") -> np.ndarray:
    return durations(trace, gpusim.load_machine(machine))[0]


def test_bytes_of_weights_and_cache_by_hand() -> None:
    assert TINY.weights() == 2 * (ATTENTION + MLP) + 1000 * 64 * 2
    assert TINY.cached(batch=3, tokens=10) == 2 * 3 * 10 * 64 * 2
    grouped = Decoder(
        layers=1, width=64, heads=4, kv_heads=2, hidden=96, vocabulary=10, gated=True, tied=False, weight_bits=4.5
    )
    matrices = 64 * 64 * 2 + 64 * 32 * 2 + 3 * 64 * 96
    assert grouped.weights() == int(2 * 64 * 64 * 4.5 / 8 + 2 * 64 * 32 * 4.5 / 8) + int(3 * 64 * 96 * 4.5 / 8) + 2 * int(
        640 * 4.5 / 8
    )
    assert sum(n * m for part in ("attention", "mlp") for n, m in grouped.matrices(part)) == matrices


def test_all_on_the_gpu_copies_nothing() -> None:
    trace = generation(TINY, Placement(), GenerationLoad(batch=2, prompt=4, tokens=3))
    assert set(trace.activity.tolist()) == {KERNEL}
    assert trace.phases == ("prefill", "decode0", "decode1")
    assert trace.meta["host_bytes"] == 0
    products = trace.flops[[trace.op_names[o] == "aten.addmm" for o in trace.op]].sum()
    block = 2 * (4 * 64 * 64 + 2 * 64 * 256)
    assert (
        products == 2 * block * 2 * (4 + 1 + 1) + 3 * 2 * 2 * 64 * 1000
    )  # tokens through two blocks; the head, last tokens only


def test_weights_come_in_once_a_part_and_pass_for_all_batches() -> None:
    place = Placement(weights_host=0.5, ahead=False)
    trace = generation(TINY, place, GenerationLoad(batch=2, prompt=4, tokens=2, batches=3))
    assert moved(trace, COPY_IN) == [ATTENTION // 2, MLP // 2] * 4
    assert trace.meta["host_bytes"] == ATTENTION + MLP
    resident = [int(s) for s, c in zip(trace.size, trace.category, strict=True) if trace.categories[c] == "param"][:5]
    assert resident == [1000 * 64 * 2, ATTENTION // 2, MLP // 2, ATTENTION // 2, MLP // 2]  # before the first pass


def test_without_prefetching_copies_and_kernels_take_turns() -> None:
    big = Decoder(layers=3, width=4096, heads=32, kv_heads=32, hidden=16384, vocabulary=1000)
    trace = generation(big, Placement(weights_host=1, ahead=False, memory="pageable"), GenerationLoad(1, 16, 1, prefill=False))
    machine = gpusim.load_machine("t4")
    copies = alone(trace)[(trace.activity == COPY_IN) | (trace.activity == HOST_WORK)].sum()
    staged = 3 * 12 * 4096 * 4096 * 2 / machine.host.pageable_h2d.value * 1e9
    assert copies == pytest.approx(staged + 6 * machine.link.latency_queued.value, rel=1e-6)  # of six parts
    kernels = alone(trace)[trace.activity == KERNEL].sum()
    metrics = gpusim.simulate(trace, on="t4", bounds=False).metrics
    beside = metrics["stall_alloc_ns"] + metrics["stall_launch_ns"]  # cudaMalloc of the buffers, launches
    assert metrics["makespan_ns"] == pytest.approx(copies + kernels + beside, abs=10)
    assert beside < 500_000


def test_prefetching_hides_the_shorter_of_both() -> None:
    big = Decoder(layers=6, width=4096, heads=32, kv_heads=32, hidden=16384, vocabulary=1000)
    work = GenerationLoad(64, 512, 1)
    hidden = generation(big, Placement(weights_host=1, parts=False), work)
    waits = generation(big, Placement(weights_host=1, parts=False, ahead=False), work)
    copy = 12 * 4096 * 4096 * 2 / gpusim.load_machine("t4").link.h2d.value * 1e9
    kernels = alone(hidden)[hidden.activity == KERNEL].sum()
    assert kernels > 6 * copy  # compute rules: all but the first copy is hidden; without prefetching none
    assert time(hidden) == pytest.approx(kernels + copy, rel=0.01)
    assert time(waits) == pytest.approx(kernels + 6 * copy, rel=0.01)


def test_cpu_attention_moves_queries_and_reads_the_cache_where_it_is() -> None:
    place = Placement(cache="host", attention="cpu", attention_passes=9, ahead=False)
    trace = generation(TINY, place, GenerationLoad(batch=2, prompt=4, tokens=2))
    row = 2 * 64 * 2
    seen = TINY.cached(2, 5)
    assert moved(trace, HOST_WORK) == [9 * seen] * 2
    assert (
        moved(trace, COPY_OUT) == [2 * 4 * row] * 2 + [3 * row, 2 * row] * 2
    )  # the prompt's keys and values; then each token's
    assert moved(trace, COPY_IN) == [row] * 2
    decode = trace.phase == trace.phases.index("decode0")
    assert "aten._softmax" not in {trace.op_names[o] for o in trace.op[decode]}


def test_a_relay_is_work_of_the_cpu_before_the_copy() -> None:
    trace = generation(TINY, Placement(weights_host=1, memory="relay", ahead=False), GenerationLoad(1, 4, 1))
    staged = trace.activity == HOST_WORK
    assert trace.read_bytes[staged].tolist() == trace.written_bytes[staged].tolist() == moved(trace, COPY_IN)


def test_weights_on_disk_pass_through_the_host() -> None:
    trace = generation(TINY, Placement(weights_host=0.25, weights_nvme=0.75, ahead=False), GenerationLoad(1, 4, 1))
    assert moved(trace, NVME_READ) == [ATTENTION * 3 // 4, MLP * 3 // 4] * 2
    assert moved(trace, COPY_IN) == [ATTENTION, MLP] * 2
    assert (trace.meta["host_bytes"], trace.meta["nvme_bytes"]) == ((ATTENTION + MLP) // 2, (ATTENTION + MLP) * 3 // 2)


def test_blocks_on_the_cpu_take_the_time_of_their_bytes() -> None:
    big = Decoder(layers=4, width=4096, heads=32, kv_heads=32, hidden=16384, vocabulary=32000, weight_bits=4.5)
    place = Placement(cpu_blocks=3, cpu_head=True, parts=False, unpacks=False)
    trace = generation(big, place, GenerationLoad(1, 16, 1, prefill=False))
    block = int(12 * 4096 * 4096 * 4.5 / 8) + big.cached(1, 16)
    assert moved(trace, HOST_WORK) == [block] * 3 + [int(4096 * 32000 * 4.5 / 8)]
    on_cpu = trace.activity == HOST_WORK
    work = alone(trace)[on_cpu]
    assert work.tolist() == [round(b / 90.9) for b in moved(trace, HOST_WORK)]  # the profile's 90.9 GB/s
    row = 4096 * 2
    assert (moved(trace, COPY_OUT), moved(trace, COPY_IN)) == ([row] * 2, [row])
    both = work.sum() + alone(trace)[~on_cpu].sum()  # one after the other, as a token passes through the blocks
    assert both <= time(trace) < both + trace.ops * 25_000


def test_packed_weights_are_unpacked_for_each_batch_or_read_as_they_are() -> None:
    packed = Decoder(layers=1, width=64, heads=4, kv_heads=4, hidden=256, vocabulary=10, weight_bits=4.5)
    unpacked = generation(packed, Placement(), GenerationLoad(1, 4, 1, batches=2))
    names = [unpacked.op_names[o] for o in unpacked.op]
    assert names.count("aten.mul") == 2 * 6
    fused = generation(packed, Placement(unpacks=False), GenerationLoad(1, 4, 1, batches=2))
    assert "aten.mul" not in fused.op_names
    read = fused.read_bytes[[fused.op_names[o] == "aten.addmm" for o in fused.op]]
    assert read[0] == int(64 * 64 * 4.5 / 8) + 4 * 64 * 2


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Placement(weights_host=0.7, weights_nvme=0.4), "shares of weights"),
        (lambda: Placement(memory="pined"), "`memory` of a placement is 'pined'"),
        (lambda: Placement(attention="cpu"), "needs a cache that is not on the GPU"),
        (lambda: Placement(hidden="nvme"), "on the GPU or the host"),
        (lambda: GenerationLoad(0, 1, 1), "at least one sample"),
        (lambda: Decoder(1, 64, 5, 5, 256, 10), "do not go together"),
        (lambda: generation(TINY, Placement(cpu_blocks=3), GenerationLoad(1, 1, 1)), "3 of 2 blocks"),
    ],
)
def test_what_does_not_go_together_is_refused(make, said: str) -> None:
    with pytest.raises(GpusimError, match=said):
        make()
