"""The clock of the metrics: how long a simulated second takes for Prometheus, and how far apart samples are.

Prometheus counts milliseconds, evaluates rules at most every second, and looks back over windows of seconds to minutes; a run
often ends within a simulated second.  So a simulated second takes `scale` seconds of the metrics' clock, the same for all runs
that are shown together.  Every rate in the dashboard and in the alerts is per *simulated* second, whatever the scale.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from gpusim.base.errors import GpusimError
from gpusim.results.monitoring.curves import I64

SHORTEST = 240  # seconds of the metrics' clock that the longest run takes at least, unless a scale is given
STEP = 1.0      # seconds between two samples, at most: a scrape every second
LEAST = 0.001   # what Prometheus tells apart
MOST = 100_000  # samples of a run


@dataclass(frozen=True)
class MetricsClock:
    """scale: seconds of this clock in a simulated second; step: seconds of this clock between two samples."""

    scale: float
    step: float = STEP

    def samples(self, end: int) -> int:
        """How many samples a run of `end` ns has: from 0 until the first at which all of it is over."""
        return math.ceil(end / 1e9 * self.scale / self.step - 1e-9) + 1

    def moments(self, end: int) -> I64:
        """Simulated times of the samples of a run of `end` ns, ns; the last is `end` or later.

        Raises GpusimError where these are too many.
        """
        count = self.samples(end)
        if count > MOST:
            raise GpusimError(
                f"at scale {self.scale:g} a run of {end / 1e9:g} simulated seconds has {count:,} samples, more than {MOST:,}",
                hint=f"take a smaller scale, such as {chosen(end).scale:g}",
            )
        return np.asarray(np.rint(np.arange(count) * (self.step / self.scale * 1e9)), np.int64)

    def seconds(self, count: int) -> list[float]:
        """The times of the first samples by this clock, s."""
        return [round(i * self.step, 3) for i in range(count)]


def chosen(longest: int, scale: float = 0.0) -> MetricsClock:
    """The clock for runs of which the longest takes so many ns.

    scale  as asked for; 0: the least of 1, 2, 5, 10, 20, ... (and 0.5, 0.2, ...) at which that takes four minutes
    """
    if not (scale >= 0 and math.isfinite(scale)):
        raise GpusimError(f"a scale of {scale:g} is no scale", hint="it is the seconds of a simulated second: 1000")
    if scale:
        shown = longest / 1e9 * scale
        return MetricsClock(scale, min(STEP, max(LEAST, round(shown / SHORTEST, 3))))
    return MetricsClock(_round_up(SHORTEST / max(longest / 1e9, 1e-9)))


def _round_up(least: float) -> float:
    """The next of 1, 2 and 5 times a power of ten."""
    power = math.floor(math.log10(least))
    return next(float(f"{digit}e{power}") for digit in (1, 2, 5, 10) if float(f"{digit}e{power}") >= least * (1 - 1e-9))
