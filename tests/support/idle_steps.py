"""Steps of a service on GPUs that computed nothing before, of an engine that composes its steps ahead."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gpusim.machine.serving.build import ServedStepTimes
from gpusim.machine.serving.step import HIDDEN, step_time


def on_idle_gpu(times: ServedStepTimes, before: Sequence[int], tokens: Sequence[int]) -> int:
    """ns: the CPU's work, which no earlier step hides, and the step."""
    parts = np.zeros(HIDDEN + 1, np.int64)
    return int(step_time(times.table, np.array(before), np.array(tokens), len(tokens), parts) + parts[HIDDEN])
