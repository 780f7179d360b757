"""Alerts on metrics over time: each condition as an expression of PromQL, and the same as a function of samples.

Windows and holding times are seconds of the metrics' clock; rates are per simulated second, so that its scale does not matter.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gpusim.results.monitoring.samples import Samples
from gpusim.results.monitoring.windows import ahead, grown, increase, lasting, rises

Truth = npt.NDArray[np.bool_]

WARNING, CRITICAL = "warning", "critical"
WINDOW = 30      # s over which rates are taken
STEPS = 120      # s in which steps of the program are compared with each other
AHEAD = 120      # s that an extrapolation looks ahead
HALF = 0.5       # of a device's time
RISES = 4        # steps in a row
GROWTH = 0.001   # of the memory: less than that within STEPS is no leak
BEHIND = 1.2     # times the kernel time of the median device
FEWEST = 3       # devices that have a median
MEMORY_WAITS = ("swap_in", "swap_out", "fault", "migration")  # causes of stalls


@dataclass(frozen=True)
class Alert:
    """An alert rule.

    promql    the condition for Prometheus
    holds     the same for the samples of all devices of a run: an array of each
    hold      s for which the condition must last before the alert fires
    summary   one line, with Prometheus's templates
    meaning   what it says, and what to do
    """

    name: str
    severity: str
    promql: str
    holds: Callable[[Sequence[Samples]], list[Truth]]
    hold: int
    summary: str
    meaning: str

    def fires(self, places: Sequence[Samples]) -> list[Truth]:
        """When it fires, for each of the devices of a run."""
        return [lasting(truth, round(self.hold / p.step)) for truth, p in zip(self.holds(places), places, strict=True)]


def _count(place: Samples, seconds: int) -> int:
    return round(seconds / place.step)


def _thrashing(places: Sequence[Samples]) -> list[Truth]:
    def one(p: Samples) -> Truth:
        n = _count(p, WINDOW)
        waits = increase(p.total("stall_seconds", cause=MEMORY_WAITS), n)
        whole = np.nansum([increase(p.total(name), n) for name in ("stall_seconds", "kernel_seconds")], axis=0)
        return np.asarray((waits > HALF * whole) & (increase(p.total("evictions"), n) > 0))

    return [one(p) for p in places]


def _leak(places: Sequence[Samples]) -> list[Truth]:
    def one(p: Samples) -> Truth:
        held, n = p.total("step_low_bytes"), _count(p, STEPS)
        return (rises(held, n) >= RISES) & (grown(held, n) > GROWTH * p.total("memory_limit_bytes", memory=("device",)))

    return [one(p) for p in places]


def _ahead(memory: str) -> Callable[[Sequence[Samples]], list[Truth]]:
    def one(p: Samples) -> Truth:
        peak, n = p.total("step_peak_bytes", memory=(memory,)), _count(p, STEPS)
        return (rises(peak, n) >= RISES) & (ahead(peak, n, p.step, AHEAD) > p.total("memory_limit_bytes", memory=(memory,)))

    return lambda places: [one(p) for p in places]


def _out_of_memory(places: Sequence[Samples]) -> list[Truth]:
    return [p.total("ooms") > 0 for p in places]


def _straggler(places: Sequence[Samples]) -> list[Truth]:
    times = np.array([p.total("step_kernel_seconds") for p in places])
    enough = (~np.isnan(times)).sum(axis=0) >= FEWEST
    with np.errstate(all="ignore"):
        median = np.array([np.nan if not ok else np.nanmedian(column) for column, ok in zip(times.T, enough, strict=True)])
    return list(times > BEHIND * median)


def _ahead_of(memory: str) -> str:
    peak = f'gpusim_step_peak_bytes{{memory="{memory}"}}'
    return (
        f'predict_linear({peak}[{STEPS}s], {AHEAD}) > gpusim_memory_limit_bytes{{memory="{memory}"}} and {_rising(peak)}'
    )


def _rising(series: str) -> str:
    return f"changes({series}[{STEPS}s]) >= {RISES} and resets({series}[{STEPS}s]) == 0"


_MEMORY = "|".join(MEMORY_WAITS)
_LOW = "gpusim_step_low_bytes"
_PEERS = "device, host, rank"  # what ranks of a run differ in; tenants of a device are no peers

ALERTS = (
    Alert(
        "GpusimMemoryLeak", WARNING,
        f"{_LOW} - min_over_time({_LOW}[{STEPS}s]) > ignoring (memory) "
        f'({GROWTH} * gpusim_memory_limit_bytes{{memory="device"}}) and {_rising(_LOW)}',
        _leak, 10,
        "{{ $labels.trace }} holds more after every step, lately {{ $value | humanize1024 }}B more",
        "What a step holds at the least has grown at each of four steps and never fallen: something is kept that each step "
        "makes anew.  Caches that are meant to grow look the same.",
    ),
    Alert(
        "GpusimDeviceMemoryRunsOut", CRITICAL, _ahead_of("device"), _ahead("device"), 10,
        "{{ $labels.trace }} is on its way to {{ $value | humanize1024 }}B of device memory, more than there is",
        "The most that a step holds has grown at each of four steps, and a straight line through it passes the limit soon.",
    ),
    Alert(
        "GpusimHostMemoryRunsOut", CRITICAL, _ahead_of("host"), _ahead("host"), 10,
        "{{ $labels.trace }} is on its way to {{ $value | humanize1024 }}B of host memory, more than there is",
        "The same of host memory, to which tensors are swapped out.",
    ),
    Alert(
        "GpusimOutOfMemory", CRITICAL, "gpusim_ooms_total > 0", _out_of_memory, 0,
        "{{ $labels.trace }} has run out of memory",
        "A request had no room, and nothing was left to evict: the run has ended.",
    ),
    Alert(
        "GpusimThrashing", WARNING,
        f'sum without (cause) (rate(gpusim_stall_seconds_total{{cause=~"{_MEMORY}"}}[{WINDOW}s])) > {HALF} * '
        f"(sum without (cause) (rate(gpusim_stall_seconds_total[{WINDOW}s])) + "
        f"sum without (stream) (rate(gpusim_kernel_seconds_total[{WINDOW}s]))) and rate(gpusim_evictions_total[{WINDOW}s]) > 0",
        _thrashing, 15,
        "{{ $labels.trace }} waits more than half of its time for swaps or page faults",
        "Streams wait more than half of their time for tensors or pages that come or leave, and some leave for others: memory "
        "is too small for what is used together.",
    ),
    Alert(
        "GpusimStraggler", WARNING,
        f"gpusim_step_kernel_seconds > ignoring ({_PEERS}) group_left () "
        f"({BEHIND} * quantile without ({_PEERS}) (0.5, gpusim_step_kernel_seconds)) "
        f"and ignoring ({_PEERS}) (count without ({_PEERS}) (gpusim_step_kernel_seconds) >= {FEWEST})",
        _straggler, 10,
        "device {{ $labels.device }} needs {{ $value | humanizeDuration }} of kernels for a step, far more than its peers",
        "The kernels of a step take a device of the run 1.2 times as long as the median one: it runs slower, or does more.",
    ),
)  # fmt: skip


@dataclass(frozen=True)
class Firing:
    """An alert that fired on a device.

    first    in simulated time, ns
    seconds  the same by the metrics' clock
    lasted   s of that clock for which it fired, in all
    """

    alert: Alert
    identity: Mapping[str, str]
    first: int
    seconds: float
    lasted: float


def firing(places: Sequence[Samples], alerts: Sequence[Alert] = ALERTS) -> list[Firing]:
    """What fires in a run, by alert and device; `places` are the samples of its devices, taken at the same moments."""
    found = []
    for alert in alerts:
        for place, fires in zip(places, alert.fires(places), strict=True):
            if fires.any():
                at, lasted = int(np.argmax(fires)), round(float(fires.sum() * place.step), 3)
                found.append(Firing(alert, place.identity, int(place.at[at]), float(place.seconds[at]), lasted))
    return found
