"""Are recorded durations freed of what ran beside them, as the model of sharing has it?

One A100 with 108 multiprocessors; a launch of 54 blocks, one of which a multiprocessor holds, can use half of them.
"""

from __future__ import annotations

import pytest

from gpusim.machine import catalogue
from gpusim.machine.kernels.alone import alone, beside, recorded_span
from gpusim.machine.kernels.measured import measured_gpu
from gpusim.trace.build import TraceBuilder
from gpusim.trace.trace import COPY_IN, KERNEL, Trace

pytestmark = pytest.mark.hand_worked

NAME = "a100-pcie-40gb"
BANDWIDTH = measured_gpu(catalogue.load(NAME)).numbers.bandwidth / 1e9  # bytes/ns
SHARED = ("sms", "memory", "engines")
HALF, ALL = "grid=54 resident=1", "grid=108 resident=1"
MS = 1_000_000


def recorded(
    *rows: tuple[int, float, float, float, str | None], on: str = NAME, activity: int = KERNEL, **meta: object
) -> Trace:
    """Operators by stream, start and end (ms), the part of the memory's bandwidth that they used, and launch.

    One without launch is an `activity`; bytes of kernels are far more than the cache holds.
    """
    build = TraceBuilder("recorded")
    for stream, start, end, part, launch in rows:
        ns = round((end - start) * MS)
        build.op(
            "aten.add.Tensor", [], [], read_bytes=round(part * BANDWIDTH * ns), duration=ns, stream=stream, launch=launch,
            device_time=round(start * MS), activity=KERNEL if launch else activity,
        )  # fmt: skip
    build.meta = {"recorded_on": on, **meta}
    return build.finish()


def own(trace: Trace, *share: str) -> list[float]:
    """The durations alone, ms."""
    return [round(ns / MS, 3) for ns in alone(trace, share or SHARED).duration.tolist()]


def test_the_second_of_two_full_grids_stands_still_while_the_first_runs() -> None:
    """0 to 10 and 4 to 14 ms: the second has multiprocessors from 10 on.  Two that leave each other room keep their times."""
    assert own(recorded((0, 0, 10, 0, ALL), (1, 4, 14, 0, ALL))) == [10, 4]
    assert own(recorded((0, 0, 10, 0, HALF), (1, 4, 14, 0, HALF))) == [10, 10]
    assert own(recorded((0, 0, 10, 0, ALL), (1, 4, 14, 0, ALL)), "memory", "engines") == [10, 10]


def test_the_stream_of_a_better_priority_goes_first() -> None:
    """In waves: three times the blocks that fit.  The first gives up its multiprocessors to the second for 6 ms."""
    waves = "grid=324 resident=1"
    assert own(recorded((0, 0, 14, 0, waves), (1, 4, 10, 0, waves))) == [14, 0.0]
    assert own(recorded((0, 0, 14, 0, waves), (1, 4, 10, 0, waves), stream_priority={"1": -1})) == [8, 6]


def test_a_kernel_that_a_copy_slowed_down_is_as_fast_as_the_memory_lets_it_be_alone() -> None:
    """A kernel bound by the memory leaves 20 % of it to a copy, for all of its 10 ms: 8 ms alone.  The copy keeps its time."""
    assert own(recorded((0, 0, 10, 0.8, ALL), (1, 0, 10, 0.2, None), activity=COPY_IN)) == [8, 10]


def test_a_kernel_that_was_slowed_down_for_a_part_of_its_time() -> None:
    """10 ms alone: 5 ms, then beside a copy of 20 % another 5 / 0.8 = 6.25 ms."""
    assert own(recorded((0, 0, 11.25, 10 / 11.25, ALL), (1, 5, 11.25, 0.2, None), activity=COPY_IN)) == [10, 6.25]


def test_a_kernel_that_computes_is_not_slowed_down() -> None:
    """20 % and 20 % of the memory's bandwidth leave 60 % idle; and no bytes need none."""
    assert own(recorded((0, 0, 10, 0.2, ALL), (1, 0, 10, 0.2, None), activity=COPY_IN)) == [10, 10]
    assert own(recorded((0, 0, 10, 0.0, ALL), (1, 0, 10, 0.9, None), activity=COPY_IN)) == [10, 10]


def test_two_kernels_that_share_the_memory_take_half_as_long_alone() -> None:
    """Half grids, each with half of the bandwidth all the time."""
    assert own(recorded((0, 0, 10, 0.5, HALF), (1, 0, 10, 0.5, HALF))) == [5, 5]
    assert own(recorded((0, 0, 10, 0.5, HALF), (1, 0, 10, 0.5, HALF)), "sms") == [10, 10]


def test_what_nothing_ran_beside_and_what_is_not_known_stays_as_recorded() -> None:
    apart = recorded((0, 0, 10, 0.8, ALL), (1, 10, 20, 0.8, ALL))
    assert alone(apart, SHARED) is apart and not len(beside(apart).stretch)
    overlapping = (0, 0, 10, 0.8, ALL), (1, 4, 14, 0.8, ALL)
    assert own(recorded(*overlapping, on="a machine of tomorrow")) == [10, 10]
    assert own(recorded(*overlapping), "engines") == [10, 10]
    assert alone(recorded(*overlapping, on=""), SHARED, catalogue.load(NAME)).duration.tolist() == [10 * MS, 4 * MS]


def test_operators_of_one_stream_overlap_by_the_rounding_of_a_clock_alone() -> None:
    trace = recorded((0, 0, 10.001, 0.8, ALL), (0, 10, 20, 0.8, ALL), (1, 30, 31, 0, ALL))
    assert alone(trace, SHARED) is trace
    assert recorded_span(trace) == 31 * MS
    assert recorded_span(TraceBuilder("nothing").finish()) == 0
