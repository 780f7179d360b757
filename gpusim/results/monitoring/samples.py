"""The samples of one device in one run: what each metric comes to at each moment of the metrics' clock."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np

from gpusim.results.monitoring.clock import MetricsClock
from gpusim.results.monitoring.curves import F64, I64
from gpusim.results.monitoring.family import Family


@dataclass(frozen=True, eq=False)
class Samples:
    """identity  values of the labels that every sample has (family.IDENTITY)
    settings  what else the run was: labels of the metric gpusim_run_info
    seconds   (N,) when the samples are taken, by the metrics' clock
    at        (N,) the same in simulated time, ns
    clock     of the metrics
    curves    metric -> values of its own labels -> (N,) values
    families  the metrics by name
    """

    identity: Mapping[str, str]
    settings: Mapping[str, str]
    seconds: F64
    at: I64
    clock: MetricsClock
    curves: Mapping[str, Mapping[tuple[str, ...], F64]]
    families: Mapping[str, Family]

    @property
    def step(self) -> float:
        """Seconds of the metrics' clock between two samples."""
        return self.clock.step

    def total(self, metric: str, **chosen: Collection[str]) -> F64:
        """(N,) the sum of a metric's curves, or of those whose own labels have one of these values; nan where there is none."""
        own = self.families[metric].labels
        wanted = [(own.index(label), values) for label, values in chosen.items()]
        found = [
            values for labels, values in self.curves.get(metric, {}).items() if all(labels[i] in ok for i, ok in wanted)
        ]
        return np.sum(found, axis=0) if found else np.full(len(self.seconds), np.nan)
