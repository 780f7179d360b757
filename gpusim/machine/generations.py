"""Rules by generation for what a profile does not say of its caches: they come from other GPUs of that kind.

Latencies in cycles, sizes in bytes of one multiprocessor, rates in bytes a clock of one multiprocessor.  Sources, all of
github.com/RRZE-HPC/gpu-benches (gpu-latency, gpu-cache, gpu-l2-cache, gpu-l2-stream, gpu-roofline) unless others are named, and
none of them held out:

    7.0    V100: latencies.  L2 has 2,048 bytes a clock (NVIDIA's A100 whitepaper), of which kernels get the shares that they
           get of an L40's, see below
    8.0    A100 40 GB: latencies, fma; 80 GB: rates
    8.6    A40: latencies, rate in step, fma.  Other rates as of an L40, by the bytes a clock: 64 of each of 48 slices for 84
           multiprocessors of the full chip, not 144
    8.9    L40
    9.0    GH200 and H100 PCIe, in the middle; from 10.0 on the same, but a GB200's rate of shared bytes
    7.5    as 8.9, by the slices for 72 multiprocessors, L1 by its size; 12.0 as 8.9
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from gpusim.machine.kernels.numbers import starved
from gpusim.machine.profile import Profile

_KIB = 1024
_POWER_SHARE = 0.43
"""Share of the vendor's fp32 peak that loops of multiply-adds reach where the power limit is too low for the clock: an L40."""


@dataclass(frozen=True)
class Generation:
    """What multiprocessors of one kind find in their caches."""

    l1: int
    """Bytes of which all loads come from L1."""
    threads: int
    """That a multiprocessor holds."""
    l1_cycles: float
    near_cycles: float
    """L2; the nearer half where there are two."""
    far_cycles: float
    """The other half; the same where there are none."""
    memory_cycles: float
    l1_rate: float
    in_step: float
    """From L2 when all multiprocessors read the same bytes at the same time, without L1."""
    beyond: float
    """Of that, the share that is left when one half, or L2, does not hold them."""
    shared: float
    """From L2 when all multiprocessors read all bytes, each elsewhere."""
    copies: float
    """From L2 by kernels that read as much as they write."""
    writes: float
    """Of that, the share of kernels that only write."""
    fma: float
    """Share of the vendor's fp32 peak that loops of multiply-adds reach."""


def _by_slices(of: Generation, bytes_a_clock: float) -> Generation:
    """With another number of bytes a clock and multiprocessor that L2 has: kernels get the same shares of them."""
    more = bytes_a_clock / (64 * 48 / 144)
    return replace(of, in_step=of.in_step * more, shared=of.shared * more, copies=of.copies * more)


_ADA = Generation(
    85 * _KIB, 1536, 34, 274, 274, 615, l1_rate=64.0, in_step=16.1, beyond=0.98, shared=14.6, copies=12.0,
    writes=0.66, fma=0.95,
)  # fmt: skip
_AMPERE = Generation(
    148 * _KIB, 2048, 36, 213, 426, 571, l1_rate=126.0, in_step=35.8, beyond=0.88, shared=36.0, copies=25.6,
    writes=0.52, fma=0.97,
)  # fmt: skip
_HOPPER = replace(
    _AMPERE, l1=216 * _KIB, l1_cycles=33, near_cycles=272, far_cycles=483, memory_cycles=668, in_step=44.0, beyond=0.55,
    fma=0.65,
)  # fmt: skip
_VOLTA = replace(
    _by_slices(_ADA, 2048 / 80), l1=120 * _KIB, threads=2048, l1_cycles=28, near_cycles=212, far_cycles=212, memory_cycles=430,
    l1_rate=126.0,
)  # fmt: skip
_GA10X = replace(
    _by_slices(_ADA, 64 * 48 / 84), l1=100 * _KIB, l1_cycles=33, near_cycles=250, far_cycles=250, memory_cycles=550,
    in_step=17.1, beyond=0.95, fma=0.62,
)  # fmt: skip
_TURING = replace(_by_slices(_ADA, 64 * 48 / 72), l1=54 * _KIB, threads=1024, l1_cycles=33, in_step=17.1)
_GENERATIONS = {
    7.0: _VOLTA, 7.2: _VOLTA, 7.5: _TURING, 8.0: _AMPERE,
    8.6: _GA10X, 8.7: replace(_GA10X, l1=148 * _KIB), 8.9: _ADA, 9.0: _HOPPER, 10.0: replace(_HOPPER, shared=63.0), 12.0: _ADA,
}  # fmt: skip


def generation(profile: Profile) -> Generation:
    """That of the GPU; of unknown ones the latest before it, or the first."""
    capability = float(profile.gpu.compute_capability)
    known = [c for c in _GENERATIONS if c <= capability]
    return _GENERATIONS[max(known, default=min(_GENERATIONS))]


def halved(profile: Profile) -> bool:
    """Whether L2 consists of two halves, each of which keeps what its own multiprocessors read."""
    return profile.memory.kind.startswith("HBM") and float(profile.gpu.compute_capability) >= 8.0


def clocks(profile: Profile) -> float:
    """Clocks of all multiprocessors in a second."""
    return float(profile.gpu.sm_count.value * profile.gpu.boost_clock.value)


def multiply_adds(profile: Profile) -> float:
    """Share of the vendor's fp32 peak that loops of multiply-adds reach."""
    gpu = profile.gpu
    bound = starved(float(gpu.compute_capability), float(gpu.peak["fp32"].value), float(gpu.tdp.value))
    return _POWER_SHARE if bound else generation(profile).fma
