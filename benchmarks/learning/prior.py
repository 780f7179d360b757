"""What the controller `bandit` believes before its first round: how long rounds take with each choice, on other programs.

    python -m benchmarks.learning.prior     # half a minute; writes the numbers that ship

The mean over the places of the logarithm of the time, less its mean over all choices there, and how far places differ.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import gpusim
from benchmarks.learning import writing
from benchmarks.learning.places import MACHINE, TRAINED_ON, places
from gpusim.engine.control.arms import ARMS
from gpusim.engine.run.simulate import simulate
from gpusim.experiment.execute import RunProgram
from gpusim.machine import sharing


def times(program: str, memory: str) -> Any:
    """ns with each choice; infinite where a run does not finish."""
    profile = gpusim.load_machine(MACHINE)
    trace: Any = gpusim.load_trace(program)
    work: Any = RunProgram(trace, profile, None, sharing.parse(sharing.WORDS)).work
    capacity = int(float(memory.removesuffix(" %")) / 100 * work.live_peak)
    runs = [simulate(work.trace, profile, work=work, capacity_bytes=capacity, **arm.policies) for arm in ARMS]
    return np.array([float(run.metrics["makespan_ns"]) if run.finished else np.inf for run in runs])


def learned(found: list[Any]) -> Any:
    """(2, arms): mean and spread."""
    logs = np.log(np.stack(found))
    logs -= np.mean(logs, axis=1, keepdims=True, where=np.isfinite(logs))
    return np.stack([logs.mean(0), logs.std(0) + 0.01])


if __name__ == "__main__":
    SAID = f"What `bandit` has learned on {', '.join(TRAINED_ON)} by prior.py: mean and spread of each choice."
    writing.table("../engine/control/bandit_prior.py", SAID, learned([times(*each) for each in places(TRAINED_ON)]), "PRIOR")
