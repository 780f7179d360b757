"""Arrays by cudaMalloc beside managed ones: they take memory of GPU 1 as long as the program runs, and never fault.

The driver's chunks are what they leave.  Other GPUs reach them where GPUs reach each other's memory; the CPU does not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from gpusim.base.units import show_bytes
from gpusim.engine.pages.bits import WORDS
from gpusim.engine.pages.driver_tables import DEVICE, FREE, HELD, MAPPED, RESIDENT, WRITABLE, DriverState
from gpusim.machine.driver_parameters import BLOCK_BYTES, UvmError
from gpusim.machine.platforms import Platform
from gpusim.programs.managed.steps import Array, Kernel

HOME = 1  # the GPU whose memory they take


def chunks(arrays: Sequence[Array], platform: Platform) -> int:
    """Of 2 MiB, that these arrays take; where CPU and GPU have one memory, all arrays are alike."""
    return 0 if platform.unified else sum(-(-(a.at + a.bytes) // BLOCK_BYTES) for a in arrays if a.kind == "device")


def fits(arrays: Sequence[Array], platform: Platform) -> None:
    """Raises UvmError for arrays for which the GPU has no room, or that leave managed ones none."""
    taken, room = chunks(arrays, platform), platform.memory // BLOCK_BYTES
    if taken and taken + any(a.kind == "managed" for a in arrays) > room:
        said = f"arrays of kind device take {show_bytes(taken * BLOCK_BYTES)} of the {show_bytes(room * BLOCK_BYTES)} of memory"
        what = "which is more than there is" if taken > room else "and leave no chunk of 2 MiB for managed ones"
        raise UvmError(f"{said} of {platform.name}, {what}", hint="make some of them managed")


def take(M: DriverState, arrays: Sequence[Array], platform: Platform) -> None:
    """The arrays are in the GPU's memory, whose chunks are fewer from now on."""
    taken, gpu = chunks(arrays, platform), M.gpus[HOME]
    if not taken:
        return
    gpu["roots"] -= taken
    last = gpu["first_root"] + gpu["roots"] - 1
    gpu["newest"][FREE], gpu["length"][FREE], gpu["room"] = last, gpu["roots"], last + 1
    M.roots["newer"][last] = -1
    M.roots["list"][last + 1 : last + 1 + taken] = HELD
    for b in range(len(M.blocks)):
        if M.blocks[b]["kind"] == DEVICE:
            all_of_it = (1 << int(M.blocks[b]["pages"])) - 1
            words = np.array([all_of_it >> 64 * w & (1 << 64) - 1 for w in range(WORDS)], np.uint64)
            planes = M.bits[: 3 * len(M.gpus) * len(M.blocks)].reshape(len(M.gpus), 3, len(M.blocks), WORDS)
            planes[HOME, RESIDENT, b] = words
            reach = slice(1, None if platform.peer_rate else HOME + 1)
            planes[reach, MAPPED, b] = planes[reach, WRITABLE, b] = words


def check(steps: Sequence[Any], arrays: Mapping[str, Array], platform: Platform) -> None:
    """Raises UvmError for a step that uses one of them as a managed one."""
    device = {name for name, array in arrays.items() if array.kind == "device"}
    if platform.unified or not device:
        return
    for step in steps:
        if isinstance(step, Kernel):
            far = [a.array for a in step.accesses if a.array in device and step.gpu != HOME and not platform.peer_rate]
            if far:
                said = f"{step.name}: segmentation fault, '{far[0]}' is in the memory of GPU {HOME}"
                raise UvmError(f"{said}, which GPU {step.gpu} does not reach", step.where)
        elif getattr(step, "array", None) in device:
            verb = {"HostTouch": "the CPU does not reach it", "Free": "it stays to the end"}.get(type(step).__name__)
            said = f"'{step.array}' is of kind device: {verb or 'it cannot be moved, hinted about or discarded'}"
            raise UvmError(said, getattr(step, "where", ""), hint="leave the step out, or let the array be managed")
