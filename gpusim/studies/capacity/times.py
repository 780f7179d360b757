"""How sure the time of a step is: kernel times are a model's, and whole steps show how far it is off."""

from __future__ import annotations

import numpy as np

from gpusim.base.units import show_time
from gpusim.machine.kernels.durations import modelled_durations
from gpusim.machine.profile import Profile
from gpusim.trace.answers import answers, instead, lacking
from gpusim.trace.trace import I64, Trace

# Of single kernels the model is within 24 % at the 90th percentile (docs/traces.md, "Kernel times").  Of whole training
# steps, compared once with 70 published throughputs (ResNet-50 and BERT on 15 GPUs), it is off by a factor of 1.41 in the
# median, mostly too fast.  With errors normal in the logarithm, that has its 90th percentile at 1.41 ** (1.645 / 0.674) = 2.3.
FASTER, SLOWER = 0.8, 2.3
WHERE = (
    "Every time is estimated, from a roofline: real steps lie between 0.8 and 2.3 times it (90 %; the model's kernels are "
    "within 24 %, its whole steps 41 % off in the median, mostly too fast; docs/fit.md)"
)


def interval(step_ns: int) -> tuple[int, int]:
    """Between which times in ns a step lies nine times out of ten."""
    return round(FASTER * step_ns), round(SLOWER * step_ns)


def shown(step_ns: int) -> str:
    """ "120 ms (96 ms to 276 ms)"."""
    low, high = interval(step_ns)
    return f"{show_time(step_ns)} ({show_time(low)} to {show_time(high)})"


def refused(trace: Trace) -> str:
    """Why no time can be told on another machine than the recording's, and what to do instead; "" where it can."""
    found = answers(trace)
    if not found.accesses or not found.times:
        need = "accesses" if not found.accesses else "times"
        return f"{lacking(trace.name, need)}; {instead(found, need)}"
    if not found.flops:
        words = "whose times are those of the machine that it was recorded on"
        return f"{lacking(trace.name, 'flops')}, {words}; {instead(found, 'flops')}"
    return ""


def everywhere(trace: Trace, profile: Profile) -> I64 | None:
    """Durations of the operators on the machine by the model, where the recording's own would hide the machine; else None."""
    return np.asarray(modelled_durations(trace, profile)[0]) if (trace.duration >= 0).any() else None
