"""How many thread blocks of a kernel one multiprocessor holds at once.

Source: NVIDIA, CUDA C++ Programming Guide 13.0, "Compute Capabilities", table "Technical Specifications per Compute
Capability": resident blocks, resident threads (`generations`), 32-bit registers (65,536 of each capability since 5.0) and
shared memory of a multiprocessor.  Registers are given out to a warp by 256, warps by 4, and shared memory by 128 bytes, of
which a block takes 1 KiB more since 8.0 (the same guide, "Shared Memory" of 8.x; the occupancy calculator of Nsight Compute).
"""

from __future__ import annotations

from gpusim.machine.generations import generation
from gpusim.machine.profile import Profile
from gpusim.trace.launches import LaunchConfiguration

_KIB = 1024
_REGISTERS, _OF_A_WARP, _WARPS, _THREADS, _SHARED = 65536, 256, 4, 32, 128
_OF_A_BLOCK = _KIB
# Compute capability -> blocks, bytes of shared memory.
_HELD = {
    5.0: (32, 64 * _KIB), 5.2: (32, 96 * _KIB), 5.3: (32, 64 * _KIB), 6.0: (32, 64 * _KIB), 6.1: (32, 96 * _KIB),
    6.2: (32, 64 * _KIB), 7.0: (32, 96 * _KIB), 7.2: (32, 96 * _KIB), 7.5: (16, 64 * _KIB), 8.0: (32, 164 * _KIB),
    8.6: (16, 100 * _KIB), 8.7: (16, 164 * _KIB), 8.9: (24, 100 * _KIB), 9.0: (32, 228 * _KIB), 10.0: (32, 228 * _KIB),
    11.0: (24, 228 * _KIB), 12.0: (24, 100 * _KIB),
}  # fmt: skip


def resident_blocks(launch: LaunchConfiguration, profile: Profile) -> int:
    """Blocks of the launch that a multiprocessor of the GPU holds at once; 0 when it cannot hold one."""
    if launch.resident:
        return launch.resident
    capability = float(profile.gpu.compute_capability)
    most, shared = _HELD[max((c for c in _HELD if c <= capability), default=min(_HELD))]
    warps = -(-launch.threads // _THREADS)
    limits = [most, generation(profile).threads // _THREADS // warps]
    if launch.registers:
        of_a_warp = -(-launch.registers * _THREADS // _OF_A_WARP) * _OF_A_WARP
        limits.append(_REGISTERS // of_a_warp // _WARPS * _WARPS // warps)
    own = _OF_A_BLOCK if capability >= 8.0 else 0
    if launch.shared + own:
        limits.append(shared // (-(-(launch.shared + own) // _SHARED) * _SHARED))
    return min(limits)
