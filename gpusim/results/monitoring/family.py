"""What a metric over time is: its name, type, unit and meaning, by the conventions of Prometheus and OpenMetrics."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpusim.results.monitoring.curves import F64

if TYPE_CHECKING:
    from gpusim.results.monitoring.recorded import Recorded

COUNTER, GAUGE = "counter", "gauge"
PREFIX = "gpusim_"
# What every sample is of; "" where a label has no meaning, which for Prometheus is not to have it.
IDENTITY = ("trace", "profile", "policy", "run", "device", "host", "tenant", "rank")

Curve = tuple[tuple[str, ...], F64]  # values of the family's own labels, and what it comes to at each moment


@dataclass(frozen=True)
class Family:
    """A metric over time: a metric family of OpenMetrics.

    name     ends in its unit, where it has one; without the prefix `gpusim_`, and without the `_total` of counters
    kind     "counter" or "gauge"
    unit     "seconds", "bytes", "ratio", or "" for a count
    meaning  one sentence
    group    the row of the dashboard
    labels   labels of its own, beside those that every sample has
    read     its curves in a run: none where the run has no such thing
    """

    name: str
    kind: str
    unit: str
    meaning: str
    group: str
    labels: tuple[str, ...]
    read: Callable[[Recorded], Iterable[Curve]]

    @property
    def family(self) -> str:
        """The name of the metric family, as TYPE, UNIT and HELP have it."""
        return PREFIX + self.name

    @property
    def sample(self) -> str:
        """The name of its samples, as queries have it."""
        return self.family + ("_total" if self.kind == COUNTER else "")
