"""Do kernels, copies and the host take exactly the time that a hand works out?  See `hand_worked` for the machine."""

from __future__ import annotations

import pytest
from hand_worked import BLOCK, SMALL, Steps, play, spans, stalls

from gpusim.results import log

pytestmark = pytest.mark.hand_worked

# --- kernels and the host -------------------------------------------------------------------------------------------------


def test_one_kernel() -> None:
    """Nothing but the kernel costs time: 0 to 5000."""
    steps = Steps()
    steps.kernel(5000, writes=(steps.alloc(),))
    result = play(steps)
    assert spans(result)["kernel"] == [(0, 5000)]
    assert result.metrics["makespan_ns"] == 5000
    assert stalls(result) == {}


def test_a_launch_gap_lies_between_two_kernels_of_a_stream() -> None:
    """0 to 5000; then 50 ns of gap: 5050 to 8050."""
    steps = Steps()
    for ns in (5000, 3000):
        steps.kernel(ns)
    result = play(steps, {"launch.gap": 50.0})
    assert spans(result)["kernel"] == [(0, 5000), (5050, 8050)]
    assert stalls(result) == {"launch": 50}


def test_a_slow_host_spaces_out_short_kernels() -> None:
    """Submissions are paid at 700, 1400, ... 3500: kernels of 200 ns start there, and wait 700 + 4 * 500 ns for the host."""
    steps = Steps()
    for _ in range(5):
        steps.kernel(200)
    result = play(steps, {"launch.submit": 700.0})
    assert spans(result)["kernel"] == [(t, t + 200) for t in (700, 1400, 2100, 2800, 3500)]
    assert stalls(result) == {"launch": 2700}


def test_a_fast_host_runs_ahead_of_long_kernels() -> None:
    """Submissions 700 ns apart, kernels of 1000 ns: the stream never waits after the first."""
    steps = Steps()
    for _ in range(5):
        steps.kernel(1000)
    result = play(steps, {"launch.submit": 700.0})
    assert spans(result)["kernel"] == [(700 + 1000 * i, 1700 + 1000 * i) for i in range(5)]


def test_the_host_is_ahead_by_at_most_the_launch_queue() -> None:
    """A queue of 2: the third kernel is submitted when the first is done, at 1000, and so on."""
    steps = Steps()
    for _ in range(5):
        steps.kernel(1000)
    result = play(steps, {"launch.queue": 2})
    assert result.log is not None
    assert result.log["t"][result.log["kind"] == log.ISSUE].tolist() == [0, 0, 1000, 2000, 3000]
    assert result.metrics["makespan_ns"] == 5000


def test_a_cached_allocation_costs_host_time() -> None:
    """Two allocations of 300 ns before the first kernel: it starts at 600."""
    steps = Steps()
    steps.kernel(1000, writes=(steps.alloc(), steps.alloc()))
    result = play(steps, {"allocation.cached_alloc": 300.0})
    assert spans(result)["kernel"] == [(600, 1600)]
    assert stalls(result) == {"alloc": 600}


def test_a_synchronising_host_waits_for_the_device() -> None:
    """The kernel runs 0 to 5000, the host waits for it; then 700 ns in the allocator: 5700 to 6700."""
    steps = Steps()
    steps.kernel(5000)
    steps.sync()
    steps.kernel(1000, writes=(steps.alloc(),))
    result = play(steps, {"allocation.cached_alloc": 700.0})
    assert spans(result)["kernel"] == [(0, 5000), (5700, 6700)]
    assert stalls(result) == {"alloc": 700}


def test_a_recorded_time_holds_the_host_back() -> None:
    """The recording issued the kernel at 4000 ns: so does the host."""
    steps = Steps()
    steps.until(4000)
    steps.kernel(1000)
    result = play(steps)
    assert spans(result)["kernel"] == [(4000, 5000)]
    assert stalls(result) == {"launch": 4000}


# --- streams --------------------------------------------------------------------------------------------------------------


def test_streams_run_side_by_side() -> None:
    """1000 ns and 2000 ns at once."""
    steps = Steps()
    steps.kernel(1000, stream=0, launch=SMALL)
    steps.kernel(2000, stream=1, launch=SMALL)
    assert spans(play(steps))["kernel"] == [(0, 1000), (0, 2000)]


def test_a_stream_waits_for_the_recorded_event_and_not_for_what_came_after() -> None:
    """Stream 1 waits for the first kernel of stream 0 (1000), not for the second (to 6000)."""
    steps = Steps()
    steps.kernel(1000, stream=0, launch=SMALL)
    steps.record(0, stream=0)
    steps.kernel(5000, stream=0, launch=SMALL)
    steps.wait(0, stream=1)
    steps.kernel(500, stream=1, launch=SMALL)
    steps.kernel(500, stream=1, launch=SMALL)
    result = play(steps)
    assert sorted(spans(result)["kernel"]) == [(0, 1000), (1000, 1500), (1000, 6000), (1500, 2000)]
    assert stalls(result) == {"event": 1000}


def test_a_reader_on_another_stream_waits_for_the_writer() -> None:
    """Written on stream 0 until 1000, read on stream 1 after; a second reader on stream 0 runs beside it."""
    steps = Steps()
    tensor = steps.alloc()
    steps.kernel(1000, writes=(tensor,), stream=0, launch=SMALL)
    steps.kernel(500, reads=(tensor,), stream=1, launch=SMALL)
    steps.kernel(700, reads=(tensor,), stream=0, launch=SMALL)
    assert sorted(spans(play(steps))["kernel"]) == [(0, 1000), (1000, 1500), (1000, 1700)]


def test_a_writer_on_another_stream_waits_for_readers() -> None:
    """Read on stream 0 from 1000 to 5000: the writer on stream 1 starts at 5000."""
    steps = Steps()
    tensor = steps.alloc()
    steps.kernel(1000, writes=(tensor,), stream=0)
    steps.kernel(4000, reads=(tensor,), stream=0)
    steps.kernel(100, writes=(tensor,), stream=1)
    assert spans(play(steps))["kernel"][-1] == (5000, 5100)


# --- blocks ---------------------------------------------------------------------------------------------------------------


def test_free_waits_for_nothing_and_the_stream_orders_the_reuse() -> None:
    """Room for one block, used twice in a stream: the host never blocks, the kernels follow each other."""
    steps = Steps()
    first = steps.alloc()
    steps.kernel(1000, writes=(first,))
    steps.free(first)
    steps.kernel(1000, writes=(steps.alloc(),))
    result = play(steps, blocks=1)
    assert result.log is not None
    assert result.log["t"][result.log["kind"] == log.ISSUE].tolist() == [0, 0]
    assert spans(result)["kernel"] == [(0, 1000), (1000, 2000)]


@pytest.mark.parametrize(("blocks", "start"), [(1, 1000), (2, 1000)])
def test_another_stream_that_reuses_a_block_waits_for_its_former_user(blocks: int, start: int) -> None:
    """The lowest address is the freed block's even when there is room elsewhere."""
    steps = Steps()
    first = steps.alloc()
    steps.kernel(1000, writes=(first,), stream=0)
    steps.free(first)
    steps.kernel(500, writes=(steps.alloc(),), stream=1)
    assert spans(play(steps, blocks=blocks))["kernel"][1] == (start, start + 500)


def test_another_stream_that_takes_a_fresh_block_waits_for_nobody() -> None:
    steps = Steps()
    steps.kernel(1000, writes=(steps.alloc(),), stream=0, launch=SMALL)
    steps.kernel(500, writes=(steps.alloc(),), stream=1, launch=SMALL)
    assert spans(play(steps, blocks=2))["kernel"] == [(0, 1000), (0, 500)]


def test_an_empty_tensor_costs_nothing() -> None:
    """No block, no copy, no wait, whatever the memory."""
    steps = Steps()
    empty, full = steps.alloc(0), steps.alloc(1)
    steps.kernel(1000, writes=(empty, full))
    steps.kernel(1000, reads=(empty,))
    steps.free(empty, full)
    result = play(steps, {"allocation.cached_alloc": 100.0}, blocks=1)
    assert result.metrics["makespan_ns"] == 2100
    assert result.metrics["allocated_peak_bytes"] == BLOCK


def test_a_device_call_costs_what_the_profile_says() -> None:
    """cudaMalloc: 5000 ns and 10,240 bytes at 2^30 ns per GiB = 1 ns per byte."""
    steps = Steps()
    steps.kernel(1000, writes=(steps.alloc(),))
    result = play(steps, {"allocation.malloc": 5000.0, "allocation.malloc_per_gib": 2.0**30}, place="cuda_malloc")
    assert spans(result)["kernel"] == [(15_240, 16_240)]
    assert stalls(result) == {"alloc": 15_240}
    assert result.metrics["device_allocs"] == 1


def test_giving_memory_back_waits_for_the_device_and_costs_after() -> None:
    """cudaMalloc 300; kernel 300 .. 9300; cudaFree waits for it and takes 700: 10,000; cudaMalloc: 10,300."""
    steps = Steps()
    first = steps.alloc()
    steps.kernel(9000, writes=(first,), stream=0)
    steps.free(first)
    steps.kernel(1000, writes=(steps.alloc(),), stream=1)
    result = play(steps, {"allocation.malloc": 300.0, "allocation.free": 700.0}, place="cuda_malloc")
    assert spans(result)["kernel"] == [(300, 9300), (10_300, 11_300)]
    assert (result.metrics["device_allocs"], result.metrics["device_frees"]) == (2, 1)


def test_giving_memory_back_does_not_wait_for_a_device_that_does_nothing() -> None:
    """PyTorch's cache on 40 MiB: 30 MiB taken and freed, then pairs of 1 MiB in segments of 2 MiB: room for five.

    The sixth segment makes the cache give the 30 MiB back, and no kernel has run.  Eight cudaMallocs of 300 ns and one cudaFree
    of 700 ns: the kernel starts at 3100.
    """
    steps = Steps()
    steps.free(steps.alloc(3072))
    small = [steps.alloc(102) for _ in range(14)]
    steps.kernel(1000, writes=(small[0],))
    result = play(steps, {"allocation.malloc": 300.0, "allocation.free": 700.0}, blocks=4096, place="pytorch")
    assert spans(result)["kernel"] == [(3100, 4100)]
    assert stalls(result) == {"alloc": 3100}
    assert (result.metrics["device_allocs"], result.metrics["device_frees"]) == (8, 1)
    assert result.metrics["reserved_peak_bytes"] == 40 << 20


def test_an_operator_that_gives_memory_back_does_not_wait_for_a_device_that_does_nothing() -> None:
    """Room for two of three blocks; none has data, so that the one that leaves for the third is dropped without a copy.

    Three cudaMallocs of 300 ns and the cudaFree of the first block, 700 ns: 1600.  The operator wants the first one back, which
    is one more of each: it starts at 2600.
    """
    steps = Steps()
    first, *_ = [steps.alloc() for _ in range(3)]
    steps.kernel(1000, writes=(first,))
    result = play(steps, {"allocation.malloc": 300.0, "allocation.free": 700.0}, blocks=2, place="cuda_malloc")
    assert spans(result)["kernel"] == [(2600, 3600)]
    assert stalls(result) == {"alloc": 2600}
    assert (result.metrics["device_allocs"], result.metrics["device_frees"]) == (4, 2)


def test_an_evicted_tensor_gives_its_memory_back_to_the_device() -> None:
    """Without an allocator an eviction is a cudaFree as well, and the device has room for one block at any time."""
    steps = Steps()
    first = steps.alloc()
    steps.kernel(1000, writes=(first,))
    steps.kernel(1000, writes=(steps.alloc(),))
    result = play(steps, blocks=1, place="cuda_malloc")
    assert (result.metrics["device_allocs"], result.metrics["device_frees"]) == (2, 1)
    assert result.metrics["reserved_peak_bytes"] == BLOCK
