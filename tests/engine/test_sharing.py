"""Do kernels and copies of one device share multiprocessors and memory bandwidth as a hand works it out, to 1 ns?

The machine has 108 multiprocessors, 10 bytes/ns to the device and a memory of 1329 bytes/ns (`hand_worked`, A100); a copy
starts after 1000 ns of latency.  A kernel of D ns that reads n * D bytes of the memory needs n bytes/ns of it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hand_worked import machine

from gpusim.engine.run.simulate import simulate
from gpusim.machine import catalogue
from gpusim.machine.profile import Collective, Profile, changed
from gpusim.machine.quantity import Count
from gpusim.results import log
from gpusim.results.result import Result
from gpusim.trace.build import TraceBuilder
from gpusim.trace.trace import COLLECTIVE, COPY_IN, RECORD, WAIT

pytestmark = pytest.mark.hand_worked

GPU = machine()
D = 1_000_000  # ns
BW = 1329  # bytes/ns
HALF, FULL = "grid=54 resident=1", "grid=108 resident=1"  # whole; a kernel without a launch is not, and can use all


class Program:
    """Operators in the order of submission, each on its stream."""

    def __init__(self, priorities: dict[int, int] | None = None) -> None:
        self._build = TraceBuilder("by hand")
        if priorities:
            self._build.meta["stream_priority"] = {str(stream): priority for stream, priority in priorities.items()}

    def kernel(self, stream: int, ns: int = D, need: float = 0.0, launch: str | None = None) -> None:
        """`need` in bytes/ns"""
        self._build.op(
            "aten.add.Tensor", [], [], read_bytes=round(need * ns), written_bytes=0, duration=ns, stream=stream, launch=launch
        )

    def copy(self, stream: int, size: int, activity: int = COPY_IN) -> None:
        self._build.op("copy", [], [], read_bytes=size, stream=stream, activity=activity)

    def after(self, first: int, then: int, event: int) -> None:
        """What comes next on stream `then` waits for what stands on stream `first`."""
        self._build.event(RECORD, event, stream=first)
        self._build.event(WAIT, event, stream=then)

    def play(self, profile: Profile = GPU, **choices: Any) -> Result:
        return simulate(self._build.finish(), profile, log=True, **choices)


def spans(result: Result) -> list[tuple[int, int]]:
    """(start, end) of each operator, by submission."""
    assert result.log is not None
    found: dict[int, list[int]] = {}
    for record in result.log[np.isin(result.log["kind"], (log.START, log.END))]:
        found.setdefault(int(record["a"]), []).append(int(record["t"]))
    return [(start, end) for _, (start, end) in sorted(found.items())]


def metric(result: Result, *names: str) -> list[int]:
    return [int(result.metrics[name]) for name in names]


def two(first: str | None, second: str | None, **choices: Any) -> list[tuple[int, int]]:
    program = Program()
    program.kernel(0, launch=first)
    program.kernel(1, launch=second)
    return spans(program.play(**choices))


# --- multiprocessors ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("launch", [None, FULL])
def test_two_kernels_that_fill_the_gpu_run_one_after_the_other(launch: str | None) -> None:
    assert two(launch, launch) == [(0, D), (D, 2 * D)]
    assert two(launch, launch, share="none") == two(launch, launch, share="memory, engines") == [(0, D), (0, D)]


def test_two_that_fill_half_run_side_by_side() -> None:
    assert two(HALF, HALF) == [(0, D), (0, D)]


def test_the_time_that_a_kernel_waits_for_multiprocessors_is_a_stall() -> None:
    program = Program()
    program.kernel(0)
    program.kernel(1, ns=10)
    result = program.play()
    assert metric(result, "stall_sms_ns", "stall_ns", "sharing_ns", "compute_busy_ns") == [D, D, 0, D + 10]


def test_a_half_leaves_half_to_a_full_one() -> None:
    """The half is whole and keeps 54.  The full one has 54 of 108: half of it is done at D, the rest takes D / 2."""
    assert two(HALF, None) == [(0, D), (0, D + D // 2)]
    result = Program()
    result.kernel(0, launch=HALF)
    result.kernel(1)
    assert metric(result.play(), "sharing_ns", "stall_sms_ns", "compute_busy_ns") == [D // 2, 0, 2 * D + D // 2]


def test_a_full_one_leaves_nothing_to_a_half() -> None:
    assert two(None, HALF) == two(FULL, HALF) == [(0, D), (D, 2 * D)]


def test_three_of_two_fifths_share_what_is_left() -> None:
    """43 + 43 of 108 leave 22 to the third, which is whole but has not all: 22/43 of it at D, then it has 43."""
    program = Program()
    for stream in range(3):
        program.kernel(stream, launch="grid=43 resident=1")
    last = D + -(-D * 21 // 43)  # 21/43 are left
    assert spans(program.play()) == [(0, D), (0, D), (0, last)]


def test_a_better_stream_takes_over_from_one_that_runs_in_waves() -> None:
    """The kernel of stream 0 stands still from 1000, when the copy is there, to 1000 + D."""
    program = Program({1: -1})
    program.kernel(0)
    program.copy(2, 0)
    program.after(2, 1, 0)
    program.kernel(1)
    assert spans(program.play()) == [(0, 2 * D), (0, 1000), (1000, 1000 + D)]


@pytest.mark.parametrize(("launch", "ends"), [(None, [(0, 2 * D), (1100, 1100 + D)]), (FULL, [(0, D), (D, 2 * D)])])
def test_one_whose_grid_is_resident_keeps_what_it_has(launch: str | None, ends: list[tuple[int, int]]) -> None:
    """The better kernel waits for a copy of 1000 + 1000 / 10 ns."""
    program = Program({1: -1})
    program.kernel(0, launch=launch)
    program.copy(2, 1000)
    program.after(2, 1, 0)
    program.kernel(1)
    first, _, second = spans(program.play())
    assert [first, second] == ends


def test_of_kernels_that_are_ready_the_better_stream_starts_first() -> None:
    program = Program({0: 5, 1: 5, 2: -5})
    for stream in (1, 0, 2):
        program.kernel(stream)
    assert spans(program.play()) == [(D, 2 * D), (2 * D, 3 * D), (0, D)]


def test_a_kernel_may_be_slowed_and_speed_up_again() -> None:
    """27 of 108 for stream 1 from 1100 to 1100 + D, for which stream 0 gives up a quarter: it has D - 1100 left at 3/4."""
    program = Program({1: -1})
    program.kernel(0)
    program.copy(2, 1000)
    program.after(2, 1, 0)
    program.kernel(1, launch="grid=27 resident=1")
    done = 1100 + D * 3 // 4
    assert spans(program.play())[0] == (0, 1100 + D + D - done)


def test_a_cap_bounds_all_kernels_together() -> None:
    """54 multiprocessors: a full kernel takes twice as long, and two halves run one after the other."""
    assert two(None, None, active_thread_percentage=50) == [(0, 2 * D), (2 * D, 4 * D)]
    assert two(HALF, HALF, active_thread_percentage=50) == [(0, D), (D, 2 * D)]
    assert two(HALF, HALF, active_thread_percentage=50, share="memory") == [(0, D), (0, D)]
    program = Program()
    program.kernel(0)
    assert spans(program.play(active_thread_percentage=50)) == [(0, 2 * D)], "of one stream as well"


def meeting(channels: int | None, changes: dict[str, float] | None = None) -> Profile:
    """The machine with links to other GPUs, over which collectives go."""
    peer = catalogue.load("a100-sxm4-80gb").peer
    assert peer is not None
    count = None if channels is None else Count(value=channels, basis="published", source="")
    profile = replace(GPU, peer=peer, collective=Collective(rate=peer.rate, latency=peer.latency, channels=count))
    for path, value in (changes or {}).items():
        profile = changed(profile, path, value)
    return profile


def test_a_collective_waits_for_its_channels_and_keeps_them() -> None:
    """100 channels do not fit beside a half; a kernel that comes while it runs has 8 of 108."""
    for count, start in ((100, D), (54, 0), (None, 0)):
        program = Program()
        program.kernel(0, launch=HALF)
        program.copy(1, 10**6, COLLECTIVE)
        program.kernel(0)
        kernel, collective, behind = spans(program.play(meeting(count)))
        assert kernel == (0, D) and collective[0] == start
        if count == 100:
            took = collective[1] - start
            assert behind[0] == D
            alone = D - took * 8 / 108  # left when the collective ends
            assert behind[1] == D + took + -int(-alone // 1)
        else:
            assert behind == (D, 2 * D), "the collective is over long before"


# --- memory bandwidth -----------------------------------------------------------------------------------------------------


def copied(need: float, size: int = 1_000_000, **choices: Any) -> tuple[list[tuple[int, int]], Result]:
    """A kernel beside a copy of `size` bytes, which begins to move at 1000."""
    program = Program()
    program.kernel(0, need=need)
    program.copy(1, size)
    result = program.play(**choices)
    return spans(result), result


def test_a_copy_slows_a_memory_bound_kernel() -> None:
    """The copy moves 10^6 bytes in 100,000 ns; of 1329 bytes/ns the kernel has 1319: 10^6 of its bytes come later, 752.4 ns."""
    found, result = copied(BW)
    assert found == [(0, D + 753), (0, 101_000)]
    assert metric(result, "sharing_ns", "stall_ns", "makespan_ns") == [753, 0, D + 753]
    assert copied(BW, share="sms, engines")[0] == [(0, D), (0, 101_000)]


@pytest.mark.parametrize("need", [0.0, 500.0, BW - 10.0])
def test_a_kernel_that_leaves_the_copy_its_bandwidth_is_not_slowed(need: float) -> None:
    found, result = copied(need)
    assert found == [(0, D), (0, 101_000)]
    assert metric(result, "sharing_ns") == [0]


def test_a_kernel_that_needs_a_little_too_much_is_slowed_a_little() -> None:
    """It needs 1324 and has 1319 for 100,000 ns: 500,000 bytes come later, at 1324 bytes/ns 377.6 ns."""
    assert copied(1324.0)[0][0] == (0, D + 378)


def test_kernels_and_a_copy_have_equal_shares_where_all_want_more() -> None:
    """Halves need 1000 each, beside a copy of 10: (1329 - 10) / 2 = 659.5 until 101,000, then 664.5."""
    program = Program()
    program.kernel(0, need=1000.0, launch=HALF)
    program.kernel(1, need=1000.0, launch=HALF)
    program.copy(2, 1_000_000)
    bytes_ = 1000 * D
    left = bytes_ - 664.5 * 1000 - 659.5 * 100_000  # before the copy moves, and beside it
    end = 101_000 + left / 664.5
    assert spans(program.play())[:2] == [(0, -int(-end // 1))] * 2


def test_a_small_need_is_met_and_the_rest_is_the_others() -> None:
    """300 and 1200 are more than 1329: 300 are met, the other has 1029 until D, then 1200."""
    program = Program()
    program.kernel(0, need=300.0, launch=HALF)
    program.kernel(1, need=1200.0, launch=HALF)
    left = (1200 - 1029) * D / 1200
    assert spans(program.play()) == [(0, D), (0, D + -int(-left // 1))]


def test_fewer_multiprocessors_need_less_bandwidth() -> None:
    """A full kernel that needs 1000 has 54 of 108, and 500 bytes/ns, beside a half that needs 800: nothing is short."""
    program = Program()
    program.kernel(0, need=800.0, launch=HALF)
    program.kernel(1, need=1000.0)
    assert spans(program.play()) == [(0, D), (0, D + D // 2)]


def test_one_that_needs_no_memory_is_not_slowed_by_those_that_do() -> None:
    program = Program()
    program.kernel(0, need=BW, launch="grid=36 resident=1")
    program.kernel(1, need=BW, launch="grid=36 resident=1")
    program.kernel(2, launch="grid=36 resident=1")
    assert spans(program.play()) == [(0, 2 * D), (0, 2 * D), (0, D)]


def test_a_collective_passes_the_memory_twice() -> None:
    """It could move 1000 bytes/ns.  With the kernel it has a third of 1329, twice, and the kernel a third: 886 are missing."""
    program = Program()
    program.kernel(0, need=BW)
    program.copy(1, 443 * 300_000, COLLECTIVE)
    first, second = spans(program.play(meeting(None, {"collective.rate": 1e12, "collective.latency": 0.0})))
    assert second == (0, 300_000)
    assert first == (0, D + 200_000), "two thirds of 300,000 ns come later"
