"""What measured kernels say of a machine: its achieved rates, its own tables and those of its kin.

A machine has the rates and tables of a measured GPU when it is that GPU: it has its name, or its vendor's numbers.  Where a
number of it was changed, the measured rate changes in proportion; of products on tensor cores it is that of a warm GPU.  A
profile's own `gpu.achieved` stands before both.  Kin is a GPU of the same compute capability and kind of memory that is bound
by its power limit as well, or is not either; of several the one of the nearest bandwidth.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from gpusim.machine.kernels.numbers import Numbers, numbers, starved
from gpusim.machine.kernels.store import rates, rates_of_steps, vendors
from gpusim.machine.profile import Profile

_SAME = 0.02  # of the vendor's numbers


@dataclass(frozen=True)
class MeasuredGpu:
    """A machine with what was measured on it or on its kin."""

    numbers: Numbers
    own: str
    """The measured GPU that it is; "" for none."""
    kin: tuple[str, ...]
    """Measured GPUs of its family, the nearest first."""


def measured_gpu(profile: Profile) -> MeasuredGpu:
    """What is known of the machine.  Raises ProfileError when the profile has no fp32 peak."""
    known, plain = vendors(), numbers(profile)
    plain.rate("float32")
    own = profile.name if profile.name in known else next((name for name, of in known.items() if _is(plain, of)), "")
    bound = plain.power_bound
    kin = [
        name
        for name, of in known.items()
        if name != own and _alike(plain, of) and starved(of["capability"], of["fp32"], of["power"]) == bound
    ]
    kin.sort(key=lambda name: abs(math.log(known[name]["bandwidth"] / plain.nominal_bandwidth)))
    found = {**rates().get(own, {}), **rates_of_steps().get(own, {})}  # programs rather than benchmarks of one kernel
    if not found:
        return MeasuredGpu(plain, own, tuple(kin))
    base, warm = known[own], found.get("sustained", 1.0)
    peak = {name: rate * plain.nominal_peak[name] / base[name] for name, rate in found.items() if name in plain.nominal_peak}
    peak = {name: rate * (1.0 if name == "fp32" else warm) for name, rate in peak.items()}
    if "bf16" in peak and "fp16" in plain.nominal_peak:  # since Ampere both run at one rate
        peak.setdefault("fp16", peak["bf16"])
    peak = {name: rate for name, rate in peak.items() if name not in (profile.gpu.achieved or {})}
    bandwidth, measured = plain.bandwidth, plain.measured | set(peak)
    if "bandwidth" in found:
        bandwidth, measured = found["bandwidth"] * profile.memory.copy.value / base["copy"], measured | {"bandwidth"}
    return MeasuredGpu(replace(plain, peak={**plain.peak, **peak}, bandwidth=bandwidth, measured=measured), own, tuple(kin))


def _alike(gpu: Numbers, of: dict[str, float]) -> bool:
    return abs(gpu.capability - of["capability"]) < 0.01 and gpu.hbm == bool(of["hbm"])


def _is(gpu: Numbers, of: dict[str, float]) -> bool:
    """Whether the numbers are the vendor's of this very GPU."""
    pairs = [(gpu.nominal_bandwidth, of["bandwidth"]), (gpu.processors, of["processors"])]
    pairs += [(peak, of[name]) for name, peak in gpu.nominal_peak.items() if name in of]
    return _alike(gpu, of) and all(abs(a / b - 1) < _SAME for a, b in pairs)
