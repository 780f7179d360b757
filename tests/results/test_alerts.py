"""Do the conditions of alerts hold when their words say so?  Windows and holding times are worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from gpusim.results.monitoring.alerts import ALERTS, Alert, firing
from gpusim.results.monitoring.clock import MetricsClock
from gpusim.results.monitoring.families import FAMILIES
from gpusim.results.monitoring.samples import Samples
from gpusim.results.monitoring.windows import ahead, grown, increase, lasting, rises

pytestmark = pytest.mark.hand_worked
NAN = float("nan")
GIB = 2.0**30


def place(length: int = 120, **curves: list[float] | dict[tuple[str, ...], list[float]]) -> Samples:
    """Samples a second apart; a curve keeps its last value."""
    found = {}
    for name, of in curves.items():
        series = of if isinstance(of, dict) else {(): of}
        found[name] = {labels: np.array(v + v[-1:] * (length - len(v)), float) for labels, v in series.items()}
    found.setdefault("memory_limit_bytes", {("device",): np.full(length, 8 * GIB), ("host",): np.full(length, 8 * GIB)})
    seconds = np.arange(length, dtype=float)
    return Samples({"run": "r", "device": "0"}, {}, seconds, np.arange(length) * 10**6, MetricsClock(1000.0), found, FAMILIES)


def alert(name: str) -> Alert:
    return next(each for each in ALERTS if each.name == name)


def names(*places: Samples) -> list[str]:
    return [f.alert.name for f in firing(places)]


def test_functions_over_windows() -> None:
    values = np.array([0.0, 1, 1, 5, 4])
    np.testing.assert_array_equal(increase(values, 3), [NAN, 1, 1, 4, 3])
    assert rises(values, 3).tolist() == [0, 1, 1, 1, 0]  # within the last window it fell
    assert grown(values, 3).tolist() == [0, 1, 1, 4, 3]
    np.testing.assert_allclose(ahead(np.array([0.0, 2, 4, 6]), 3, 1.0, 10.0), [NAN, 22, 24, 26])
    assert lasting(np.array([True, True, True, False, True]), 1).tolist() == [False, True, True, False, False]
    assert lasting(np.array([True, False]), 0).tolist() == [True, False]


def staircase(*gib: float) -> list[float]:
    """A step of 10 s at each of these levels."""
    return [level * GIB for level in gib for _ in range(10)]


def test_what_grows_at_four_steps_is_a_leak_after_ten_more_seconds() -> None:
    (found,) = firing([place(step_low_bytes=staircase(1, 2, 3, 4, 5))])
    assert (found.alert.name, found.seconds, found.first) == ("GpusimMemoryLeak", 50.0, 50 * 10**6)


@pytest.mark.parametrize(
    "levels", [(1, 2, 3, 2, 5), (1, 2, 3, 4), (1, 1, 1, 1, 1), (1, 1 + 1e-4, 1 + 2e-4, 1 + 3e-4, 1 + 4e-4)],
    ids=["it fell", "three steps", "level", "next to nothing"],
)  # fmt: skip
def test_what_does_not_is_none(levels: tuple[float, ...]) -> None:
    assert not firing([place(step_low_bytes=staircase(*levels))])


def test_memory_runs_out_where_a_line_through_the_peaks_says_so() -> None:
    peaks = staircase(1, 2, 3, 4, 5)
    assert names(place(step_peak_bytes={("device",): peaks, ("host",): [0.0]})) == ["GpusimDeviceMemoryRunsOut"]
    assert names(place(step_peak_bytes={("device",): [0.0], ("host",): peaks})) == ["GpusimHostMemoryRunsOut"]
    slow = staircase(1, 1.1, 1.2, 1.3, 1.4)  # 0.1 GiB in 10 s are below 3 GiB in two minutes
    assert not names(place(step_peak_bytes={("device",): slow, ("host",): slow}))


def test_thrashing_is_more_than_half_of_the_time_of_streams() -> None:
    def of(waits: float, evicted: float = 1) -> Samples:
        seconds = np.arange(120.0)
        stalls = {("swap_in",): list(waits * seconds), ("launch",): list(0.2 * seconds)}
        kernels = {("0",): list((0.8 - waits) * seconds)}
        return place(stall_seconds=stalls, kernel_seconds=kernels, evictions=list(evicted * seconds))

    (found,) = firing([of(0.55)])
    assert (found.alert.name, found.seconds) == ("GpusimThrashing", 16.0)  # from the second sample on, for 15 s
    assert not firing([of(0.45)])
    assert not firing([of(0.55, evicted=0)]), "what comes for the first time has not been thrown out before"


def test_a_straggler_is_slower_than_the_median_of_at_least_three() -> None:
    def of(*times: float) -> list[Samples]:
        return [place(step_kernel_seconds=[time]) for time in times]

    places = of(1, 1.1, 1.4)
    fires = alert("GpusimStraggler").fires(places)
    assert [bool(f.any()) for f in fires] == [False, False, True] and int(np.argmax(fires[2])) == 10
    assert not names(*of(1, 1.1, 1.3)) and not names(*of(1, 9)), "too little, too few"


def test_what_is_out_of_memory_fires_at_once() -> None:
    (found,) = firing([place(length=40, ooms=[0.0] * 39 + [1.0])])
    assert (found.alert.name, found.seconds, found.lasted) == ("GpusimOutOfMemory", 39.0, 1.0)


def test_a_run_without_a_metric_fires_nothing() -> None:
    assert not firing([place(memory_limit_bytes={("device",): [GIB]})])
