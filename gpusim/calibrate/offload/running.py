"""One run of a program on a profile, for its time alone."""

from __future__ import annotations

from gpusim.base.errors import GpusimError
from gpusim.base.yaml.values import capacity
from gpusim.experiment.single import single
from gpusim.experiment.spec import KINDS, Policies, RunSpec
from gpusim.machine import words
from gpusim.trace.trace import Trace


def seconds(trace: Trace, machine: str) -> float:
    """The makespan on a profile, "name" or "name(number=value)".  Raises GpusimError where the run does not finish."""
    usual = {kind: getattr(Policies(), kind)[0] for kind in KINDS}
    spec = RunSpec(trace.name, machine, capacity("capacity"), capacity("capacity"), **usual)
    result, _ = single(trace, words.load(machine), spec, bounds=False)
    if result.outcome != "finished":
        raise GpusimError(f"ends with '{result.outcome}'")
    return result.metrics["makespan_ns"] / 1e9
