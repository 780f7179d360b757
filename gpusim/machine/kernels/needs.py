"""What kernels need of a GPU beside time: multiprocessors, and bandwidth of its memory.

A kernel of which nothing more is known can use all multiprocessors, in more than one wave.
"""

from __future__ import annotations

from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from gpusim.machine.kernels.durations import bytes_from_memory
from gpusim.machine.kernels.measured import MeasuredGpu, measured_gpu
from gpusim.machine.profile import Profile
from gpusim.trace.trace import COLLECTIVE, KERNEL, Trace

F64 = npt.NDArray[np.float64]
I64 = npt.NDArray[np.int64]


class KernelNeeds(NamedTuple):
    """What O operators need of a GPU."""

    sms: I64
    """(2, O): multiprocessors that each can use, 0 for what is no kernel; whether its whole grid is resident at once on them"""
    memory: F64
    """(O,) of the memory's bandwidth by each that runs alone, bytes/ns"""
    processors: int
    """Multiprocessors that the program's kernels may use together"""
    bandwidth: float
    """Of the memory, as kernels achieve it, bytes/ns"""


def kernel_needs(trace: Trace, duration: I64, profile: Profile, percentage: int = 100) -> KernelNeeds:
    """The needs of the operators, which take so long alone (ns), when a program may use so many percent of the multiprocessors.

    Raises ProfileError when the profile has no fp32 peak, TraceError for a launch configuration that the GPU cannot run.
    """
    gpu = measured_gpu(profile)
    bandwidth, processors = gpu.numbers.bandwidth / 1e9, gpu.numbers.processors
    limit = -(-percentage * processors // 100)
    return KernelNeeds(_processors(trace, profile, processors, limit), _bandwidths(trace, duration, gpu), limit, bandwidth)


def _processors(trace: Trace, profile: Profile, processors: int, limit: int) -> I64:
    """A collective takes as many as it has channels, as far as the program may."""
    of_collectives = profile.collective and profile.collective.channels
    channels = min(limit, int(of_collectives.value)) if of_collectives else 0
    found = np.zeros((2, trace.ops), np.int64)
    found[0, trace.activity == KERNEL] = processors
    found[:, trace.activity == COLLECTIVE] = [[channels], [1]]
    return found


def _bandwidths(trace: Trace, duration: I64, gpu: MeasuredGpu) -> F64:
    """The bytes of each kernel over its time, no more than there is."""
    moved = np.where(trace.activity == KERNEL, _from_memory(trace, gpu), 0.0)
    rate = np.divide(moved, duration, out=np.zeros(trace.ops), where=duration > 0)
    return np.minimum(rate, gpu.numbers.bandwidth / 1e9)


def _from_memory(trace: Trace, gpu: MeasuredGpu) -> F64:
    """(O,) bytes, kept as long as the trace is."""
    known = _KNOWN.setdefault(trace, {})
    of = repr(gpu.numbers)
    if of not in known:
        known[of] = bytes_from_memory(trace, gpu)
    return known[of]


_KNOWN: WeakKeyDictionary[Trace, dict[str, F64]] = WeakKeyDictionary()
