"""How many blocks does a multiprocessor hold, and what does a kernel need of the GPU?  By the tables of NVIDIA's guide."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gpusim.machine import catalogue
from gpusim.machine.kernels.measured import measured_gpu
from gpusim.machine.kernels.needs import ALL, kernel_needs
from gpusim.machine.occupancy import resident_blocks
from gpusim.machine.profile import Collective
from gpusim.machine.quantity import Count
from gpusim.trace.build import TraceBuilder
from gpusim.trace.launches import LaunchConfiguration
from gpusim.trace.trace import COLLECTIVE, COPY_IN, Trace

A100, L4, T4 = (catalogue.load(name) for name in ("a100-pcie-40gb", "l4", "t4"))
SMS = 108  # of an A100


@pytest.mark.parametrize(
    ("launch", "a100", "l4", "t4"),
    [
        (LaunchConfiguration(1, 256), 8, 6, 4),  # threads: 2048, 1536, 1024
        (LaunchConfiguration(1, 32), 32, 24, 16),  # blocks
        (LaunchConfiguration(1, 256, registers=128), 2, 2, 2),  # 65,536 registers, 4,096 a warp: 16 warps
        (LaunchConfiguration(1, 96, registers=65), 9, 9, 9),  # 2,304 a warp: 28 warps, by fours, in blocks of 3
        (LaunchConfiguration(1, 128, shared=49_152), 3, 2, 1),  # 164, 100 and 64 KiB; 1 KiB more of each block but on the T4
        (LaunchConfiguration(1, 128, shared=160_000), 1, 0, 0),
        (LaunchConfiguration(1, 0, resident=5), 5, 5, 5),
    ],
)
def test_blocks_of_a_multiprocessor(launch: LaunchConfiguration, a100: int, l4: int, t4: int) -> None:
    assert [resident_blocks(launch, p) for p in (A100, L4, T4)] == [a100, l4, t4]


def program() -> Trace:
    build = TraceBuilder("needs")
    for launch in (None, "grid=108 resident=2", "grid=216 resident=2", "grid=217 resident=2", "grid=9 block=128 shared=200000"):
        build.op("aten.add.Tensor", [], [], read_bytes=3_000_000_000, written_bytes=0, duration=10_000_000, launch=launch)
    build.op("copy", [], [], read_bytes=1000, activity=COPY_IN)
    build.op("nccl", [], [], read_bytes=1000, activity=COLLECTIVE)
    return build.finish()


def test_a_kernel_can_use_what_holds_its_blocks() -> None:
    trace = program()
    sms, whole, _ = kernel_needs(trace, trace.duration, A100).sms.tolist()
    assert sms == [SMS, 54, SMS, SMS, SMS, 0, 0]
    assert whole == [0, 1, 1, 0, 0, 0, 1]
    assert kernel_needs(trace, trace.duration, A100, percentage=50).processors == 54
    assert kernel_needs(trace, trace.duration, A100, percentage=51).processors == 56, "rounded up"


def test_the_last_blocks_have_begun_when_half_a_wave_is_left() -> None:
    """One wave: never before the end, none is left to begin.  217 / 216 of a wave: 108 / 217 left; 208 multiprocessors' blocks
    where no launch is known; under a cap of half of the multiprocessors twice as many waves."""
    trace = program()
    assert kernel_needs(trace, trace.duration, A100).sms[2].tolist() == [740_385, ALL, ALL, 502_304, 740_385, 0, ALL]
    assert kernel_needs(trace, trace.duration, A100, percentage=50).sms[2, [0, 3]].tolist() == [870_192, 751_152]


def test_a_kernel_bound_by_memory_needs_a_part_of_the_multiprocessors() -> None:
    """ceil(0.29 * 108) = 32 where a program may not use all, as of an H100's triad; multiply-adds need all that there are."""
    trace = program()
    bound = kernel_needs(trace, trace.duration // 10, A100, percentage=50)
    assert bound.sms[0].tolist() == [32] * 5 + [0, 0]
    assert kernel_needs(trace, trace.duration // 10, A100).sms[0, 0] == SMS
    assert kernel_needs(trace, trace.duration, A100, percentage=50).sms[0, 0] == SMS, "300 of 1,700 bytes/ns"


def test_a_collective_takes_its_channels_as_far_as_it_may() -> None:
    trace, link = program(), A100.link
    channels = Count(value=24, basis="published", source="")
    sxm = replace(A100, collective=Collective(rate=link.h2d, latency=link.latency_queued, channels=channels))
    assert kernel_needs(trace, trace.duration, sxm).sms[:, -1].tolist() == [24, 1, ALL]
    assert kernel_needs(trace, trace.duration, sxm, percentage=10).sms[:, -1].tolist() == [11, 1, ALL]


def test_the_need_of_memory_is_bytes_past_the_cache_over_time() -> None:
    trace = program()
    bandwidth = measured_gpu(A100).numbers.bandwidth / 1e9
    needs = kernel_needs(trace, trace.duration, A100)
    assert needs.bandwidth == bandwidth
    assert needs.memory.tolist() == [300.0] * 5 + [0.0, 0.0]  # 3 GB, of which none stay in 40 MB
    assert kernel_needs(trace, trace.duration // 10, A100).memory.tolist() == [bandwidth] * 5 + [0.0, 0.0]
    cached = TraceBuilder("cached")
    cached.op("aten.add.Tensor", [], [], read_bytes=1_000_000, written_bytes=0, duration=1000)
    small = cached.finish()
    assert kernel_needs(small, small.duration, A100).memory.tolist() == [0.0]
    assert kernel_needs(small, np.zeros(1, np.int64), A100).memory.tolist() == [0.0]
