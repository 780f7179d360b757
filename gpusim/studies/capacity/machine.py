"""What there is to say of a machine beside its answer: types that it emulates, numbers of its profile that are estimates."""

from __future__ import annotations

from gpusim.machine.catalogue import quantities
from gpusim.machine.profile import Profile
from gpusim.trace.trace import Trace

# Type of a tensor -> its name, and the compute capability from which tensor cores or units compute in it.
_FROM = {"bfloat16": ("bf16", 8.0), "float16": ("fp16", 5.3), "float8_e4m3fn": ("fp8", 8.9), "float8_e5m2": ("fp8", 8.9)}
# Numbers of a profile that the answer rests on.
_USED = ("memory.capacity", "context", "memory.bandwidth", "memory.copy", "gpu.peak")


def emulated(trace: Trace, profile: Profile) -> tuple[str, ...]:
    """Types that the program computes in and the GPU does not have: it converts to fp32, in the same memory but slower."""
    used = {trace.dtypes[number] for number in set(trace.dtype.tolist()) if number >= 0}
    missing = (_FROM[word][0] for word in sorted(used & set(_FROM)) if float(profile.gpu.compute_capability) < _FROM[word][1])
    return tuple(dict.fromkeys(missing))


def estimates(profile: Profile) -> tuple[str, ...]:
    """Paths of the numbers that the profile marks estimated, of those that decide the answer."""
    return tuple(path for path, q in quantities(profile) if q.basis == "estimated" and path.startswith(_USED))
