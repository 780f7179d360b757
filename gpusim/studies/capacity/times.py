"""How sure the time of a step is: kernel times are a model's, whose classes have each an interval."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np

from gpusim.base.units import show_time
from gpusim.machine.constants import NO_TIME, HostTime, host_time
from gpusim.machine.kernels import bars
from gpusim.machine.kernels.durations import OperatorTimes, durations
from gpusim.machine.kernels.own_times import OwnTimes
from gpusim.machine.product import profile_of
from gpusim.machine.profile import Profile
from gpusim.results.log import ISSUE, START
from gpusim.results.result import Result
from gpusim.trace.answers import answers, instead, lacking
from gpusim.trace.iterations import iterations
from gpusim.trace.recorded_times import recorded_factor, recorded_on
from gpusim.trace.trace import OP, Trace

Tables = Mapping[str, OwnTimes]
NO_TABLES: Tables = MappingProxyType({})

WHERE = (
    "Every time is estimated: kernel times are modelled, and the interval has every class of kernels at the 10th or at the "
    "90th percentile of its own error (docs/fit.md)"
)


@dataclass(frozen=True)
class StepBar:
    """How sure the kernels of the last iteration are on one machine.

    kernel_ns  their time
    low, high  factors on it
    decides    the class on which the interval depends most, "" for none
    operators  that the host submits
    host       what it takes for each
    gap_ns     that the device takes between one and the next
    """

    kernel_ns: int
    low: float
    high: float
    decides: str
    operators: int = 0
    host: HostTime = NO_TIME
    gap_ns: float = 0.0

    @property
    def host_ns(self) -> int:
        """Of the host, for all operators."""
        return round(self.operators * self.host.ns)

    @property
    def device_ns(self) -> int:
        """Of the kernels and the gaps between them."""
        return round(self.kernel_ns + self.operators * self.gap_ns)

    @property
    def host_bound(self) -> bool:
        """Whether the host takes longer than the device."""
        return self.host_ns > self.device_ns

    def interval(self, step_ns: int) -> tuple[int, int]:
        """Between which times in ns a step lies: of the device or the host, the longer one; the rest stays as it is."""
        rest = max(0, step_ns - max(self.device_ns, self.host_ns))
        low, high = (
            rest + max(self.device_ns + self.kernel_ns * (factor - 1), self.operators * each)
            for factor, each in ((self.low, self.host.low), (self.high, self.host.high))
        )
        return round(min(low, step_ns)), round(max(high, step_ns))

    def shown(self, step_ns: int) -> str:
        """ "120 ms (96 ms to 276 ms)"."""
        low, high = self.interval(step_ns)
        return f"{show_time(step_ns)} ({show_time(low)} to {show_time(high)})"


CERTAIN = StepBar(0, 1.0, 1.0, "")


def step_bar(trace: Trace, times: OperatorTimes, profile: Profile) -> StepBar:
    """The bar of a program's steps on the machine, whose operators take these times."""
    of = iterations(trace)[trace.kind == OP]
    last = of == of.max(initial=0)
    columns = {name: getattr(times, name)[last] for name in ("ns", "basis", "low", "high", "bound", "what")}
    found = bars.bars(times._replace(**columns))
    most = bars.decides(found)
    kernel_ns, host = sum(bar.ns for bar in found), host_time(trace, profile)
    return StepBar(kernel_ns, *bars.interval(found), most.what if most else "", int(last.sum()), host, profile.launch.gap.value)


def last_iteration(result: Result, trace: Trace) -> int:
    """ns on the device from the first operator of the last iteration to the end; all of it where there is one.

    The result must have its event log: the host issues operators long before they run.
    """
    makespan, log = int(result.metrics["makespan_ns"]), result.log
    of_ops = iterations(trace)[trace.kind == OP]
    if not len(of_ops) or log is None:
        return makespan
    first = int(np.argmax(of_ops == of_ops.max()))
    activity = log["addr"][(log["kind"] == ISSUE) & (log["a"] == first)]
    if not first or not len(activity):
        return makespan
    starts = log["t"][(log["kind"] == START) & (log["a"] == activity[0])]
    return makespan - int(starts[0]) if len(starts) else makespan


def refused(trace: Trace) -> str:
    """Why no time can be told on another machine than the recording's, and what to do instead; "" where it can."""
    found = answers(trace)
    if not found.accesses or not found.times:
        need = "accesses" if not found.accesses else "times"
        return f"{lacking(trace.name, need)}; {instead(found, need)}"
    if not found.flops and not placed(trace):
        words = "whose times are those of the machine that it was recorded on"
        return f"{lacking(trace.name, 'flops')}, {words}; {instead(found, 'flops')}"
    return ""


def times_on(trace: Trace, profile: Profile, tables: Tables = NO_TABLES) -> OperatorTimes:
    """Times of the operators on the machine: the trace's own, scaled, where their GPU is known; else the model's.

    Times of an unknown GPU would hide the machine.  `tables` are the user's own by machine.
    """
    if (trace.duration >= 0).any() and not placed(trace):
        trace = replace(trace, duration=np.full(trace.ops, -1, np.int64))
    return durations(trace, profile, own=tables.get(profile.name))


def placed(trace: Trace) -> bool:
    """Whether it is known of which GPU the recorded times are, or by which factor they become this one's."""
    return bool(recorded_factor(trace)) or profile_of(recorded_on(trace)) is not None
