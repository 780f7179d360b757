"""Rules by generation for what a profile does not say of its caches: they come from other GPUs of that kind.

Latencies in cycles, sizes in bytes of one multiprocessor, rates in bytes a clock of one multiprocessor.  Where nothing else is
said a number is the median of measured rows that fits may see, from github.com/RRZE-HPC/gpu-benches (A100 40 GB and 80 GB, H100
PCIe, GH200, V100; gpu-latency, gpu-cache, gpu-l2-cache, gpu-l2-stream, gpu-roofline):

    l1         of 128, 192 and 256 KiB loads find 120, 148 and 216; other generations have a share of 85 %
    near, far  L2 in two halves, each of which keeps what its own multiprocessors read: HBM parts since Ampere
    in_step    0.75 of the 5,120 bytes a clock that NVIDIA states for an A100 (its whitepaper); the same of a V100's 2,048
    GDDR       latency of L1 and memory as a GA106's (33 and 515 cycles), of L2 as an RTX 4090's (273)
    copies     GDDR and Volta as an A40's (the catalogue's curve); reads 0.73 of it (`streaming`), shared or not
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from gpusim.machine.profile import Profile

_KIB = 1024


@dataclass(frozen=True)
class Generation:
    """What multiprocessors of one kind find in their caches."""

    l1: int
    threads: int
    """That a multiprocessor holds."""
    l1_cycles: float
    near_cycles: float
    """L2; the nearer half where there are two."""
    far_cycles: float
    """The other half; the same where there are none."""
    memory_cycles: float
    in_step: float
    """From L2 when all multiprocessors read the same bytes at the same time, without L1."""
    beyond: float
    """Of that, the share that is left when one half, or L2, does not hold them."""
    shared: float
    """From L2 when all multiprocessors read all bytes, each elsewhere."""
    copies: float
    """From L2 by kernels that read as much as they write."""
    fma: float
    """Share of the vendor's fp32 peak that loops of multiply-adds reach."""


_VOLTA = Generation(120 * _KIB, 2048, 28, 212, 212, 430, 19.3, 0.65, 19.3, 20.0, 0.95)
_AMPERE = Generation(148 * _KIB, 2048, 36, 213, 426, 571, 35.8, 0.88, 36.0, 25.6, 0.97)
_HOPPER = Generation(216 * _KIB, 2048, 33, 272, 483, 668, 44.0, 0.55, 36.0, 25.6, 0.65)
_GDDR = Generation(109 * _KIB, 1536, 33, 273, 273, 515, 14.6, 0.65, 14.6, 20.0, 0.95)
_GENERATIONS = {
    7.0: _VOLTA, 7.2: _VOLTA, 7.5: replace(_GDDR, l1=54 * _KIB, threads=1024), 8.0: _AMPERE, 8.6: _GDDR,
    8.7: replace(_GDDR, l1=163 * _KIB), 8.9: _GDDR, 9.0: _HOPPER, 10.0: replace(_HOPPER, shared=63.0), 12.0: _GDDR,
}  # fmt: skip

PER_CLOCK = 126.0
"""Bytes a clock that L1 gives: 125.4 on an A100 80 GB, 126.1 on an H100 PCIe, of 128."""


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
