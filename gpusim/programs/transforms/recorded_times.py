"""Recorded times on another GPU than the recording's."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from gpusim.base.errors import GpusimError
from gpusim.machine.product import profile_of
from gpusim.trace import recorded_times as of_gpu
from gpusim.trace.trace import KERNEL, Trace


def recorded_times(trace: Trace, on: str = "", factor: float = 0.0) -> Trace:
    """Say of which GPU the trace's own times are, or multiply them by a factor of your own.

    on      the machine or product of the recording: on another one each kernel's time is scaled by the ratio of the modelled
            times; the machine that runs is the same one: times stay as recorded
    factor  or: by what kernels take longer (above 1) or shorter than recorded, wherever the trace runs

    A Kineto trace names its GPU, and is scaled without this.  Copies keep their recorded times under a factor.
    """
    if bool(on) == bool(factor):
        raise GpusimError("transform 'recorded_times' takes 'on' or 'factor'", hint='such as on="v100-sxm2-32gb" or factor=0.6')
    if not (trace.duration >= 0).any():
        raise GpusimError(f"{trace.name} has no recorded times")
    if on:
        if profile_of(on) is None:
            raise GpusimError(f"parameter 'on' of transform 'recorded_times' is '{on}'", hint="`gpusim profiles` lists them")
        meta = {key: value for key, value in trace.meta.items() if key != of_gpu.FACTOR}
        return replace(trace, meta={**meta, of_gpu.ON: on})
    if not 0 < factor < np.inf:
        raise GpusimError(f"parameter 'factor' of transform 'recorded_times' is {factor}", hint="it is above 0")
    known = (trace.duration >= 0) & (trace.activity == KERNEL)
    duration = np.where(known, np.rint(trace.duration * factor), trace.duration).astype(np.int64)
    total = factor * (of_gpu.recorded_factor(trace) or 1.0)
    return replace(trace, duration=duration, meta={**trace.meta, of_gpu.FACTOR: total})
