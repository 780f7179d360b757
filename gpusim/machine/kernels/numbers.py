"""What of a GPU the kernel times need: achieved peak per precision, achieved bandwidth, caches, processors, clock.

Achieved rates are what one large GEMM and one streaming kernel reach.  Where they were measured they are taken; else they are
the vendor's number times the share that is usual for the class of GPU, with a bar.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from gpusim.base.errors import ProfileError
from gpusim.machine.profile import Profile

BITS = {"float64": 64, "float32": 32, "tfloat32": 32, "float16": 16, "bfloat16": 16, "float8": 8}
_NAME = {"float64": "fp64", "float32": "fp32", "tfloat32": "tf32", "float16": "fp16", "bfloat16": "bf16", "float8": "fp8"}

SHARE = {"fp64": 0.85, "fp32": 0.80, "tf32": 0.70, "fp16": 0.72, "bf16": 0.72, "fp8": 0.55}
"""Share of the vendor's peak that a large GEMM reaches where nothing was measured."""
SHARE_BAR = 0.25
"""Relative bar of such a peak, to both sides."""
BANDWIDTH, BANDWIDTH_BAR = 0.86, 0.06
"""The same of streaming."""
_FP32_PER_WATT = 1.1e11
"""Above so many fp32 flop/s per watt of its limit a GPU cannot hold its clock (P4, T4, L4)."""
POWER_SHARE = 0.58
"""Share of the vendor's fp32 peak that such a GPU reaches."""


@dataclass(frozen=True)
class Numbers:
    """One GPU.  Rates in flop/s and bytes/s, clock in Hz, cache in bytes."""

    name: str
    capability: float
    processors: int
    clock: float
    cache: float
    hbm: bool
    power: float
    peak: dict[str, float]
    """Achieved, by element type: fp32, tf32, fp16, bf16, fp8."""
    bandwidth: float
    """Achieved by streaming kernels."""
    nominal_peak: dict[str, float] = field(default_factory=dict)
    nominal_bandwidth: float = 0.0
    measured: frozenset[str] = frozenset()
    """Which of the achieved rates were measured: names of `peak`, and "bandwidth"."""

    @property
    def reach(self) -> float:
        """Bytes that one processor finds in the cache: HBM parts keep a copy in each half."""
        return self.cache / 2 if self.hbm else self.cache

    @property
    def power_bound(self) -> bool:
        """Whether the power limit is too low for the clock under load."""
        return self.nominal_peak.get("fp32", 0.0) / max(self.power, 1.0) > _FP32_PER_WATT

    def rate(self, dtype: str) -> tuple[float, str]:
        """flop/s of matrix products of an element type, and the type in which the GPU computes them.

        Types that the GPU lacks are emulated: bfloat16 before Ampere in fp32, float8 before Ada in 16 bits.
        """
        name = _NAME.get(dtype, dtype)
        if name == "bf16" and self.capability < 8.0:
            name = "fp32"
        if name == "fp8" and "fp8" not in self.peak:
            name = "bf16" if self.capability >= 8.0 else "fp16"
        if name == "bf16" and "bf16" not in self.peak:
            name = "fp16"
        if name == "tf32" and "tf32" not in self.peak:
            name = "fp32"
        if name not in self.peak:
            name = "fp32"
        if name not in self.peak:
            raise ProfileError(f"the profile '{self.name}' has no fp32 peak, which kernel times need")
        return self.peak[name], name


def numbers(profile: Profile, peak: dict[str, float] | None = None, bandwidth: float | None = None) -> Numbers:
    """The numbers of a machine; `peak` (by fp32, bf16, ...) and `bandwidth` are rates that were measured on it."""
    gpu, memory = profile.gpu, profile.memory
    nominal = {name: float(quantity.value) for name, quantity in gpu.peak.items()}
    starved = nominal.get("fp32", 0.0) / max(gpu.tdp.value, 1.0) > _FP32_PER_WATT
    share = {**SHARE, "fp32": POWER_SHARE} if starved else SHARE
    achieved = {name: value * share.get(name, SHARE["bf16"]) for name, value in nominal.items()}
    measured = set(peak or {}) | ({"bandwidth"} if bandwidth else set())
    if not bandwidth:
        bandwidth = float(memory.copy.value)
        if memory.copy.basis == "measured":
            measured.add("bandwidth")
        else:
            bandwidth = float(memory.bandwidth.value) * BANDWIDTH
    return Numbers(
        name=profile.name,
        capability=float(gpu.compute_capability),
        processors=int(gpu.sm_count.value),
        clock=float(gpu.boost_clock.value),
        cache=float(gpu.l2.value),
        hbm=memory.kind.startswith("HBM"),
        power=float(gpu.tdp.value),
        peak={**achieved, **(peak or {})},
        bandwidth=float(bandwidth),
        nominal_peak=nominal,
        nominal_bandwidth=float(memory.bandwidth.value),
        measured=frozenset(measured),
    )


def tf32(what: str, stated: bool | None) -> bool:
    """Whether float32 runs as TF32: as PyTorch has it, on for convolutions and off for matrix products, unless stated."""
    return what.startswith("conv") if stated is None else stated
