"""What kernels need of a GPU beside time: multiprocessors, and bandwidth of its memory.

A kernel whose launch configuration is recorded can use as many multiprocessors as hold its blocks.  One of which nothing more
is known, or whose blocks this GPU cannot hold, can use all of them, in waves (`OF_ONE_IN_WAVES`).  Of a program that may not
use all, a kernel bound by memory needs only as many as ask for all of the bandwidth: on an H100 a triad kept 0.95 of its rate
with 50 % of the multiprocessors and 0.85 with 25 %, as if 29 % sufficed (gpusim/calibrate/data/h100_sxm).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from gpusim.machine.kernels.durations import bytes_from_memory
from gpusim.machine.kernels.measured import MeasuredGpu, measured_gpu
from gpusim.machine.occupancy import resident_blocks
from gpusim.machine.profile import Profile
from gpusim.trace.launches import LaunchConfiguration, parse_launch
from gpusim.trace.trace import COLLECTIVE, KERNEL, Trace

F64 = npt.NDArray[np.float64]
I32 = npt.NDArray[np.int32]
I64 = npt.NDArray[np.int64]


BOUND_BY_MEMORY = 0.5
"""Share of the bandwidth from which on a kernel counts as bound by it."""
SATURATES = 0.29
"""Share of the multiprocessors from which on streaming kernels have all of the bandwidth."""


OF_ONE_IN_WAVES = 208
"""Multiprocessors that the blocks of a kernel in waves fill, of which no launch is recorded: as those of Orion's ten programs
(harmonic mean over their time, of the programs alike; gpusim/calibrate/data/sharing_kernels.csv.gz)."""
ALL = 1_000_000


class KernelNeeds(NamedTuple):
    """What O operators need of a GPU."""

    sms: I32
    """(3, O): multiprocessors that each can use, 0 for what is no kernel; whether its whole grid is resident at once on them;
    millionths of its work that are done when its last blocks have begun, if all of them are its own"""
    memory: F64
    """(O,) of the memory's bandwidth by each that runs alone, bytes/ns"""
    processors: int
    """Multiprocessors that the program's kernels may use together"""
    bandwidth: float
    """Of the memory, as kernels achieve it, bytes/ns"""


def kernel_needs(trace: Trace, duration: I64, profile: Profile, percentage: int = 100) -> KernelNeeds:
    """The needs of the operators, which take so long alone (ns), when a program may use so many percent of the multiprocessors.

    Raises ProfileError when the profile has no fp32 peak.
    """
    gpu = measured_gpu(profile)
    bandwidth, processors = gpu.numbers.bandwidth / 1e9, gpu.numbers.processors
    limit = -(-percentage * processors // 100)
    sms, memory = _processors(trace, profile, processors, limit), _bandwidths(trace, duration, gpu)
    if percentage < 100:
        streams = memory >= BOUND_BY_MEMORY * bandwidth
        sms[0, streams] = np.minimum(sms[0, streams], math.ceil(SATURATES * processors))
    return KernelNeeds(sms, memory, limit, bandwidth)


def with_collectives(needs: KernelNeeds, trace: Trace, blocks: Mapping[int, int]) -> KernelNeeds:
    """The same, where collectives take as many multiprocessors as said here, as far as the program may.

    blocks  operator -> multiprocessors of each GPU; what is no collective, but a copy, takes none
    """
    sms = needs.sms.copy()
    for operator, count in blocks.items():
        if trace.activity[operator] == COLLECTIVE:
            sms[0, operator] = min(count, needs.processors)
    return needs._replace(sms=sms)


def _processors(trace: Trace, profile: Profile, processors: int, limit: int) -> I32:
    """(3, O) as `KernelNeeds.sms`; a collective takes as many as it has channels, as far as the program may."""
    of_collectives = profile.collective and profile.collective.channels
    channels = min(limit, int(of_collectives.value)) if of_collectives else 0
    found = np.zeros((3, trace.ops), np.int32)
    is_kernel = trace.activity == KERNEL
    found[0, is_kernel], found[2, is_kernel] = processors, begun(OF_ONE_IN_WAVES / limit)
    if trace.launches:
        launches = [parse_launch(text) for text in trace.launches]
        of_launches = np.array([_of_launch(each, profile, processors, limit) for each in launches], np.int64)
        known = is_kernel & (trace.launch >= 0)
        found[:, known] = of_launches[trace.launch[known]].T
    found[:, trace.activity == COLLECTIVE] = [[channels], [1], [ALL]]
    return found


def _of_launch(launch: LaunchConfiguration, profile: Profile, processors: int, limit: int) -> tuple[int, bool, int]:
    """(multiprocessors that hold its blocks, whether they hold all at once, what is done when the last have begun)"""
    resident = resident_blocks(launch, profile)
    wanted = -(-launch.blocks // resident) if resident else processors + 1
    waves = launch.blocks / resident / limit if resident else OF_ONE_IN_WAVES / limit
    return min(processors, wanted), wanted <= processors, ALL if wanted <= processors else begun(waves)


def begun(waves: float) -> int:
    """Millionths of a kernel's work that are done when the last of its blocks begin: those that run then are half done."""
    return round(ALL * (1 - 0.5 / max(1.0, waves)))


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
