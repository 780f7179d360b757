"""Which of the numbers that an answer rests on are estimates of the profile."""

from __future__ import annotations

from gpusim.machine.catalogue import quantities
from gpusim.machine.profile import Profile

# Numbers of a profile that the answer rests on.
_USED = ("memory.capacity", "context", "memory.bandwidth", "memory.copy", "gpu.peak")


def estimates(profile: Profile) -> tuple[str, ...]:
    """Paths of the numbers that the profile marks estimated, of those that decide the answer."""
    return tuple(path for path, q in quantities(profile) if q.basis == "estimated" and path.startswith(_USED))
