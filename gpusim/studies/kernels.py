"""A program's kernels on a machine by class: how many, how long, bound by what, how that is known, and how sure it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gpusim.base.errors import TraceError
from gpusim.base.units import show_time
from gpusim.machine.constants import host_time
from gpusim.machine.kernels import bars
from gpusim.machine.kernels.durations import durations, unknown
from gpusim.machine.kernels.own_times import OwnTimes
from gpusim.machine.kernels.remarks import remarks
from gpusim.machine.product import profile_of
from gpusim.machine.profile import Profile
from gpusim.trace.recorded_times import recorded_factor, recorded_on
from gpusim.trace.trace import KERNEL, Trace

HOST = "host"
"""What bounds classes whose kernels are shorter, with the gap after each, than the host takes to submit one."""
BOUNDS = {
    "launch": "the fixed time of a kernel's start and end",
    HOST: "the host, which takes longer to submit them than the GPU to run them",
}
"""Words of the column `bound` that do not speak for themselves."""
BASES = {
    "recorded": "the trace's own times",
    "scaled": "the trace's times of another GPU, times the model's ratio of the two",
    "measured": "a model that measurements on this GPU correct",
    "family": "a model that measurements on a GPU of its family correct",
    "class": "a model fitted to other GPUs, with rates that were measured on this one",
    "default": "a model fitted to other GPUs or to like kernels",
}
"""Words of the column `basis`."""


@dataclass(frozen=True, eq=False)
class KernelStudy:
    """The kernels of a program.

    host_ns    the host's time for one operator
    gap_ns     the device's time between two of them
    unknown    name -> time in ns of operators of which neither shape nor flops nor bytes are known
    notes      what is to be said of recorded times and of a user's own table
    """

    trace: Trace
    profile: Profile
    classes: list[bars.ClassBar]
    host_ns: int
    gap_ns: int
    unknown: dict[str, int]
    notes: list[str]

    @property
    def ns(self) -> int:
        """Of all kernels."""
        return sum(bar.ns for bar in self.classes)

    @property
    def count(self) -> int:
        """Of the kernels."""
        return sum(bar.count for bar in self.classes)

    @property
    def submitting_ns(self) -> int:
        """Of the host, for all kernels."""
        return self.host_ns * self.count

    @property
    def device_ns(self) -> int:
        """Of all kernels and the gaps between them."""
        return self.ns + self.gap_ns * self.count

    def values(self) -> dict[str, Any]:
        """All of it as JSON values; times in ns."""
        low, high = bars.interval(self.classes)
        most = bars.decides(self.classes)
        return {
            "trace": self.trace.name, "profile": self.profile.name, "kernels_ns": self.ns,
            "low_ns": round(self.ns * low), "high_ns": round(self.ns * high), "decides": most.what if most else "",
            "device_ns": self.device_ns, "host_ns": self.submitting_ns,
            "classes": [
                {"class": bar.what, "count": bar.count, "ns": bar.ns, "share": bar.ns / max(self.ns, 1),
                 "bound": self.bound(bar), "basis": bar.basis,
                 "low_ns": round(bar.ns * bar.low), "high_ns": round(bar.ns * bar.high)}
                for bar in self.classes
            ],
            "unknown": {name: ns / max(self.ns, 1) for name, ns in self.unknown.items()},
            "notes": self.notes,
        }  # fmt: skip

    def bound(self, bar: bars.ClassBar) -> str:
        """What limits most of a class's time."""
        return HOST if bar.ns < bar.count * (self.host_ns - self.gap_ns) else bar.bound

    def rows(self) -> list[dict[str, str]]:
        """A row for each class, the longest first."""
        return [
            {"class": bar.what, "operators": f"{bar.count:,}", "time": show_time(bar.ns),
             "share": f"{bar.ns / max(self.ns, 1):.1%}", "bound": self.bound(bar), "basis": bar.basis,
             "interval": f"{show_time(round(bar.ns * bar.low))} to {show_time(round(bar.ns * bar.high))}"}
            for bar in self.classes
        ]  # fmt: skip

    def sentences(self) -> list[str]:
        """What the table comes to."""
        found = self.values()
        said = [
            f"{self.trace.name} on {self.profile.name}: {show_time(self.ns)} of kernels in the whole recording, estimated; "
            f"{show_time(found['low_ns'])} to {show_time(found['high_ns'])} four times out of five"
            + (f", and most of that interval comes from {found['decides']}." if found["decides"] else ".")
        ]
        if self.submitting_ns > self.device_ns:
            said.append(
                f"Bound by the host: it submits {self.count:,} operators in {show_time(self.submitting_ns)}, "
                f"{show_time(self.host_ns)} each, longer than the GPU's {show_time(self.device_ns)}. A CUDA graph would leave "
                f"the GPU's time: {self.profile.name}(launch.eager=0 us, launch.submit=0 us)."
            )
        if self.unknown:
            names = ", ".join(f"{name} ({share:.1%})" for name, share in found["unknown"].items())
            said.append(f"Without shape, flops and bytes, so that an empty kernel stands for them: {names} of the time.")
        return [*said, *remarks(self.trace, self.profile), *self.notes, *self.legend()]

    def legend(self) -> list[str]:
        """What the words in the table's columns mean."""
        said = []
        for column, words, used in (
            ("Bound", BOUNDS, {self.bound(bar) for bar in self.classes}),
            ("Basis", BASES, {bar.basis for bar in self.classes}),
        ):
            meant = "; ".join(f"{word} = {meaning}" for word, meaning in words.items() if word in used)
            said += [f"{column}: {meant}."] if meant else []
        return said


def study(trace: Trace, profile: Profile, given: Profile | None = None, own: OwnTimes | None = None) -> KernelStudy:
    """Look at a program's kernels; copies and work of the CPU are left out.

    Raises ProfileError, and TraceError for a `given` machine of a trace without recorded times.
    """
    if given is not None and not (trace.duration >= 0).any():
        raise TraceError(f"{trace.name} has no recorded times to scale", hint="leave out --recorded-on: its times are modelled")
    times = durations(trace, profile, given, own)
    kernels = trace.activity == KERNEL
    columns = {name: getattr(times, name)[kernels] for name in ("ns", "basis", "low", "high", "bound", "what")}
    blind = unknown(trace) & kernels & (trace.duration < 0)
    by_name: dict[str, int] = {}
    for i, ns in zip(trace.op[blind].tolist(), times.ns[blind].tolist(), strict=True):
        by_name[trace.op_names[i]] = by_name.get(trace.op_names[i], 0) + ns
    notes = _of_recorded(trace, profile, given) + (own.table.contradictions() if own else [])
    if own and not _covers(own, trace):
        alone = "No operator has the name, type and shape of a row of your table, which only corrects shapes near its own."
        notes.append(alone)
    return KernelStudy(
        trace, profile, bars.bars(times._replace(**columns)), round(host_time(trace, profile).ns),
        round(profile.launch.gap.value), by_name, notes
    )


def _of_recorded(trace: Trace, profile: Profile, given: Profile | None) -> list[str]:
    """What became of recorded times: a sentence, or none where there are none or they are this machine's."""
    named = recorded_on(trace)
    origin = given or profile_of(named)
    if not (trace.duration >= 0).any() or (origin is not None and origin.name == profile.name):
        return []
    if factor := recorded_factor(trace):
        return [f"Recorded times, times {factor:g}."]
    if origin is not None:
        return [f"Recorded on {origin.name}; each time is scaled by the ratio of the modelled times."]
    return [f"Recorded on {named or 'a machine that the trace does not name'}, which is no profile: times stay as they are."]


def _covers(own: OwnTimes, trace: Trace) -> bool:
    """Whether an operator of the trace is in the user's table."""
    shaped = trace.shape >= 0
    rows = np.unique(np.stack([trace.op, trace.dtype, trace.shape], axis=1)[shaped], axis=0).tolist()
    types = (*trace.dtypes, "float32")  # the last where none is known
    return any(own.table.at(trace.op_names[op], types[dtype], trace.shapes[shape]) for op, dtype, shape in rows)
