"""The operators of a program under the roofs of a machine: flops against bytes, and bytes alone where there are no flops.

The roofline: Williams, Waterman and Patterson, Communications of the ACM 52(4), 2009.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gpusim.machine.kernels.durations import BOUND, OperatorTimes, durations
from gpusim.machine.kernels.numbers import numbers
from gpusim.machine.kernels.operators import distinct
from gpusim.machine.profile import Profile
from gpusim.trace.trace import KERNEL, Trace


@dataclass(frozen=True)
class RooflinePoint:
    """Operators that are alike in name, type, shape and bytes.

    flops, moved  of one of them, flop and bytes of its tensors
    ns            one of them takes; `low`, `high`: the interval of that
    share         of the time of all kernels, together
    bound         "compute", "memory" or "launch"
    """

    name: str
    dtype: str
    count: int
    flops: float
    moved: float
    ns: float
    low: float
    high: float
    share: float
    bound: str


@dataclass(frozen=True)
class Roofline:
    """Rates in flop/s and bytes/s: nominal ones are the vendor's, which no kernel exceeds but out of a cache."""

    program: str
    machine: str
    peak: dict[str, float]  # nominal, by number format in which operators of the program compute
    achieved: dict[str, float]
    bandwidth: float
    achieved_bandwidth: float
    points: tuple[RooflinePoint, ...]  # by falling share

    def of_flops(self, *, with_flops: bool) -> tuple[RooflinePoint, ...]:
        """The points that compute, or those that only move bytes."""
        return tuple(p for p in self.points if (p.flops > 0) is with_flops and p.moved > 0)


def roofline(trace: Trace, profile: Profile, times: OperatorTimes | None = None) -> Roofline:
    """The distinct operators of the trace on the machine, by the time that they take; `times` if they are known."""
    found = times or durations(trace, profile)
    gpu = numbers(profile)
    first, which = distinct(trace)
    counts = np.bincount(which, minlength=len(first))
    total = np.bincount(which, found.ns.astype(np.float64), len(first))
    moved = (trace.read_bytes + trace.written_bytes).astype(np.float64)
    kernels = trace.activity[first] == KERNEL
    everything = float(total[kernels].sum()) or 1.0
    points = []
    for i in np.argsort(-total, kind="stable"):
        row = int(first[i])
        if not kernels[i] or not total[i]:
            continue
        mean = float(total[i] / counts[i])
        low, high = mean * np.exp(found.low[row]), mean * np.exp(found.high[row])
        points.append(RooflinePoint(
            trace.op_names[trace.op[row]], trace.dtypes[trace.dtype[row]], int(counts[i]), float(trace.flops[row]),
            float(moved[row]), mean, float(low), float(high), float(total[i] / everything), BOUND[found.bound[row]],
        ))  # fmt: skip
    used = sorted({gpu.rate(p.dtype)[1] for p in points if p.flops > 0})
    nominal, achieved = ({name: rates[name] for name in used if name in rates} for rates in (gpu.nominal_peak, gpu.peak))
    return Roofline(trace.name, profile.name, nominal, achieved, gpu.nominal_bandwidth, gpu.bandwidth, tuple(points))
