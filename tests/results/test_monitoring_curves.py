"""Do the curves of metrics over time come to what their rows add up to, at every moment and at the end?"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpusim.base.errors import GpusimError
from gpusim.results.monitoring.clock import MetricsClock, chosen
from gpusim.results.monitoring.curves import counted, covered, extremes, integrated, level, spent, summed

AT = np.array([0, 5, 10, 15, 100])
pytestmark = pytest.mark.formulas


def test_what_has_come_is_counted_and_summed_at_its_time() -> None:
    times = np.array([10, 5, 5])
    assert counted(times, AT).tolist() == [0, 2, 3, 3, 3]
    assert summed(times, np.array([100, 1, 2]), AT).tolist() == [0, 3, 103, 103, 103]


def test_time_inside_spans_grows_while_they_last() -> None:
    starts, ends = np.array([2, 4, 50]), np.array([8, 12, 60])
    assert spent(starts, ends, AT).tolist() == [0, 3 + 1, 6 + 6, 6 + 8, 6 + 8 + 10]
    assert covered(starts, ends, AT).tolist() == [0, 3, 8, 10, 20]


def test_a_level_holds_until_the_next_and_is_nothing_before_the_first() -> None:
    assert level(np.array([5, 12]), np.array([7, 9]), AT).tolist() == [0, 7, 7, 9, 9]


def test_a_rate_adds_up() -> None:
    second = 10**9
    at = np.array([0, 1, 2, 4, 5]) * second
    assert integrated(np.array([1, 2, 4]) * second, np.array([100, 10, 0]), at).tolist() == [0, 0, 100, 120, 120]


def test_extremes_have_the_value_that_holds_when_a_span_begins_and_not_that_of_its_end() -> None:
    times, values = np.array([1, 3, 6, 9]), np.array([5, 1, 8, 100])
    low, high = extremes(times, values, np.array([2, 6]), np.array([6, 9]))
    assert (low.tolist(), high.tolist()) == ([1, 8], [5, 8])


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 20)), max_size=12))
def test_spans_are_worked_out_tick_by_tick(spans: list[tuple[int, int]]) -> None:
    starts = np.array([start for start, _ in spans], np.int64)
    ends = starts + np.array([length for _, length in spans], np.int64)
    at = np.arange(75)
    inside = [sum(start <= t < end for start, end in zip(starts, ends, strict=True)) for t in range(75)]
    assert spent(starts, ends, at).tolist() == np.concatenate([[0], np.cumsum(inside)[:-1]]).tolist()
    assert covered(starts, ends, at).tolist() == np.concatenate([[0], np.cumsum(np.array(inside) > 0)[:-1]]).tolist()


@pytest.mark.parametrize(("longest", "scale"), [(865_193_365, 500), (10**12, 0.5), (240 * 10**9, 1), (1_000_000, 500_000)])
def test_the_longest_run_takes_four_to_ten_minutes(longest: int, scale: float) -> None:
    clock = chosen(longest)
    assert (clock.scale, clock.step) == (scale, 1.0)
    assert 240 <= longest / 1e9 * clock.scale < 600


def test_the_last_sample_is_when_the_run_is_over_or_later() -> None:
    clock = MetricsClock(500)
    moments = clock.moments(865_193_365)
    assert moments[0] == 0 and moments[1] == 2_000_000 and moments[-2] < 865_193_365 <= moments[-1]
    assert clock.seconds(len(moments))[-1] == 433


def test_a_short_run_in_real_time_is_sampled_by_milliseconds() -> None:
    assert chosen(50_000_000, 1.0) == MetricsClock(1.0, 0.001)
    assert chosen(50_000_000, 1.0).samples(50_000_000) == 51


@pytest.mark.parametrize("scale", [-1.0, float("nan"), float("inf")])
def test_no_scale_is_refused(scale: float) -> None:
    with pytest.raises(GpusimError, match="is no scale"):
        chosen(10**9, scale)


def test_too_many_samples_are_refused_with_a_scale_that_is_not() -> None:
    said = r"has 1,000,000,001 samples, more than 100,000 \(take a smaller scale, such as 500\)"
    with pytest.raises(GpusimError, match=said):
        chosen(10**9, 1e9).moments(10**9)
