"""The operators of a program under the roofs of a machine: flops against bytes, and bytes alone where there are no flops.

The roofline: Williams, Waterman and Patterson, Communications of the ACM 52(4), 2009.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gpusim.base.units import show_fraction
from gpusim.machine.kernels.durations import BOUND, OperatorTimes, computed_in, durations
from gpusim.machine.kernels.measured import measured_gpu
from gpusim.machine.kernels.operators import distinct
from gpusim.machine.profile import Profile
from gpusim.trace.trace import KERNEL, Trace

LONGEST = 22  # characters of an operator's name
_WORDS = {"compute": "arithmetic", "memory": "memory", "launch": "starting kernels"}


@dataclass(frozen=True)
class RooflinePoint:
    """Operators that are alike in name, type, shape and bytes.

    computed      the number format in which the machine computes them
    flops, moved  of one of them, flop and bytes of its tensors
    ns            one of them takes; `low`, `high`: the interval of that
    share         of the time of all kernels, together
    bound         "compute", "memory" or "launch"
    """

    name: str
    dtype: str
    computed: str
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
    gpu = measured_gpu(profile).numbers
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
        dtype = trace.dtypes[trace.dtype[row]] if trace.dtype[row] >= 0 else "float32"
        computed = computed_in(found.classes[found.what[row]], dtype, trace.meta, gpu)
        points.append(RooflinePoint(
            trace.op_names[trace.op[row]], dtype, computed, int(counts[i]), float(trace.flops[row]), float(moved[row]), mean,
            float(low), float(high), float(total[i] / everything), BOUND[found.bound[row]],
        ))  # fmt: skip
    used = sorted({p.computed for p in points if p.flops > 0})
    nominal, achieved = ({name: rates[name] for name in used if name in rates} for rates in (gpu.nominal_peak, gpu.peak))
    return Roofline(trace.name, profile.name, nominal, achieved, gpu.nominal_bandwidth, gpu.bandwidth, tuple(points))


def answer(found: Sequence[Roofline]) -> str:
    """What binds the first program, and which operator takes most of its time; "" without programs."""
    if not found:
        return ""
    one = found[0]
    shares = {bound: sum(p.share for p in one.points if p.bound == bound) for bound in _WORDS}
    most = max(shares, key=lambda bound: shares[bound])
    said = f"{show_fraction(shares[most], 2)} of the kernel time is bound by {_WORDS[most]}"
    longest: dict[str, float] = {}
    for p in one.points:
        longest[p.name] = longest.get(p.name, 0.0) + p.share
    first = max(longest, key=lambda name: longest[name], default="")
    said += f"; {short(first)} takes most, {show_fraction(longest[first], 2)}." if first else "."
    return f"{one.program} on {one.machine}: {said}" if len(found) > 1 else said


def short(name: str) -> str:
    """ "aten.mm.default" is mm."""
    bare = name.removeprefix("aten.").removeprefix("aten::").removesuffix(".default").lstrip("_")
    bare = bare.replace("scaled_dot_product_", "")
    return bare if len(bare) <= LONGEST else bare[: LONGEST - 1] + "…"
