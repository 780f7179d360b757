"""What of a GPU the kernel times need: achieved peak per precision, achieved bandwidth, caches, processors, clock.

Achieved rates are what one large GEMM and one streaming kernel reach.  Where they were measured they are taken; else they are
the vendor's number times the share that is usual for the class of GPU, with a bar.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gpusim.base.errors import ProfileError
from gpusim.machine.profile import Profile

BITS = {"float64": 64, "float32": 32, "tfloat32": 32, "float16": 16, "bfloat16": 16, "float8": 8}
SHORT = {"float64": "fp64", "float32": "fp32", "tfloat32": "tf32", "float16": "fp16", "bfloat16": "bf16", "float8": "fp8"}
"""Element types as profiles name their peaks."""

SHARE = {"fp64": 0.85, "fp32": 0.80, "tf32": 0.70, "fp16": 0.72, "bf16": 0.72, "fp8": 0.55}
"""Share of the vendor's peak that a large GEMM reaches where nothing was measured."""
BANDWIDTH = 0.86
"""The same of streaming."""
_FP32_PER_WATT = ((7.0, 0.6e11), (8.0, 0.9e11), (8.9, 1.7e11), (9.0, 3e11), (99.0, 3e11))
"""Below this capability, above so many fp32 flop/s per watt of its limit, a GPU cannot hold its clock (P4, T4, A10, L4)."""
POWER_SHARE = 0.58
"""Share of the vendor's fp32 peak that such a GPU reaches."""
_GEFORCE = re.compile(r"rtx-[2345]0[5-9]0(-.*)?")
"""GeForce since Turing: products of 16 bits run at half the vendor's rate when they are summed in fp32, as PyTorch has it; the
vendor's rate of TF32 is that with such sums."""
_GEFORCE_FP16, _GEFORCE_BANDWIDTH = 0.95, 0.93
"""Shares that they reach, instead of SHARE and BANDWIDTH: half the rate leaves the clock its boost (whole steps, RTX 3090)."""
_CACHE_HBM, _CACHE = 18.7, 14.6
"""Bytes a clock and processor that reads get from the second-level cache, of GPUs with HBM and others: 0.73 (`streaming`) of
what copies get on an A100 and a GH200 (26.1, 25.2) and on an A40 (20.4), the curves of their profiles."""


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
        return starved(self.capability, self.nominal_peak.get("fp32", 0.0), self.power)

    @property
    def cache_rate(self) -> float:
        """Bytes/s that the second-level cache gives to kernels that read."""
        return (_CACHE_HBM if self.hbm else _CACHE) * self.processors * self.clock

    def rate(self, dtype: str) -> tuple[float, str]:
        """flop/s of matrix products of an element type, and the type in which the GPU computes them.

        Types that the GPU lacks are emulated: bfloat16 before Ampere in fp32, float8 before Ada in 16 bits.
        """
        name = SHORT.get(dtype, dtype)
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


def bytes_of(dtype: str) -> int:
    """Bytes of an element of a type, as traces name it."""
    return BITS.get(dtype.partition("_")[0], 32) // 8


def numbers(profile: Profile, peak: dict[str, float] | None = None, bandwidth: float | None = None) -> Numbers:
    """The numbers of a machine; `peak` (by fp32, bf16, ...) and `bandwidth` are rates that were measured on it."""
    gpu, memory = profile.gpu, profile.memory
    peak = {**{name: float(quantity.value) for name, quantity in (gpu.achieved or {}).items()}, **(peak or {})}
    nominal = {name: float(quantity.value) for name, quantity in gpu.peak.items()}
    geforce = bool(_GEFORCE.fullmatch(profile.name))
    if geforce and "fp16" in nominal:
        nominal["fp16"] /= 2
    bound = starved(float(gpu.compute_capability), nominal.get("fp32", 0.0), float(gpu.tdp.value))
    share = {**SHARE, "fp32": POWER_SHARE} if bound else SHARE
    if geforce:
        share = {**share, "fp16": _GEFORCE_FP16, "bf16": _GEFORCE_FP16, "tf32": _GEFORCE_FP16}
    achieved = {name: value * share.get(name, SHARE["bf16"]) for name, value in nominal.items()}
    measured = set(peak) | ({"bandwidth"} if bandwidth else set())
    if not bandwidth:
        bandwidth = float(memory.copy.value)
        if memory.copy.basis == "measured":
            measured.add("bandwidth")
        else:
            bandwidth = float(memory.bandwidth.value) * (_GEFORCE_BANDWIDTH if geforce else BANDWIDTH)
    return Numbers(
        name=profile.name,
        capability=float(gpu.compute_capability),
        processors=int(gpu.sm_count.value),
        clock=float(gpu.boost_clock.value),
        cache=float(gpu.l2.value),
        hbm=memory.kind.startswith("HBM"),
        power=float(gpu.tdp.value),
        peak={**achieved, **peak},
        bandwidth=float(bandwidth),
        nominal_peak=nominal,
        nominal_bandwidth=float(memory.bandwidth.value),
        measured=frozenset(measured),
    )


def starved(capability: float, fp32: float, power: float) -> bool:
    """Whether a GPU of so many fp32 flop/s (the vendor's) is bound by its power limit in W."""
    limit = next(limit for below, limit in _FP32_PER_WATT if capability < below)
    return fp32 / max(power, 1.0) > limit


def tf32(what: str, meta: Mapping[str, Any]) -> bool:
    """Whether float32 runs as TF32, where the GPU has it, by PyTorch's two switches as a trace's meta states them.

    `tf32` is that of matrix products (torch.backends.cuda.matmul.allow_tf32), off by default; `cudnn_tf32` that of
    convolutions (torch.backends.cudnn.allow_tf32), on by default.
    """
    return bool(meta.get("cudnn_tf32", True) if what.startswith("conv") else meta.get("tf32", False))
