"""What it takes to take a process off a GPU and to bring it back: vLLM's sleep levels and cuda-checkpoint.

    sleep, level 1   weights are copied to pinned host memory, a buffer for each tensor, and all memory is unmapped; waking maps
                     it again and copies the weights back.  Keys and values are dropped, CUDA graphs stay.
    sleep, level 2   everything is dropped; waking maps the memory and loads the weights from their files.
    checkpoint       the driver copies all that is allocated, used or not, to host memory of its own and releases the GPU;
                     restoring copies it back to the same addresses.

Buffers of host memory that the process does not have yet are allocated first.  PyTorch's host cache keeps those of a sleep,
each of a power of two, so that later sleeps find them; the driver's are released with each restore.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from gpusim.machine.profile import Profile

GIB = 1 << 30
FILES = ("page_cache", "nvme")
"""Where the weights' files are when level 2 reads them."""
READ_RATE = 10e9
"""bytes/s of one thread that reads files of the page cache, as of one that reads memory (`Platform.cpu_rate`)."""


@dataclass(frozen=True)
class SleepCosts:
    """What sleeping costs beside copies of bytes, ns.

    pin      a GiB of host memory, allocated as one pinned buffer for each tensor
    map      a GiB of device memory that is created, mapped and made accessible
    release  all of it, once
    load     to begin to load weights, once

    From published rows, by `calibrate.sharing.suspend.fitted`; docs/suspend.md.
    """

    pin: float = 450e6
    map: float = 3.3e6
    release: float = 44e6
    load: float = 390e6


class SuspendStep(NamedTuple):
    """A part of a suspend or resume: what is done, ns, and the bytes that it handles."""

    what: str
    ns: float
    size: float


@dataclass(frozen=True)
class Process:
    """What a process has on its GPU.

    tensors    bytes of each weight
    allocated  bytes in all, with keys and values that were allocated and are not used
    """

    tensors: tuple[int, ...]
    allocated: float

    @property
    def weights(self) -> int:
        return sum(self.tensors)

    @property
    def buffers(self) -> int:
        """Bytes of host memory for a copy of each weight: powers of two."""
        return sum(1 << (size - 1).bit_length() for size in self.tensors if size)


def total(steps: Sequence[SuspendStep]) -> float:
    """ns of all."""
    return sum(step.ns for step in steps)


def sleep(
    profile: Profile, process: Process, level: int, missing: float, costs: SleepCosts, share: float = 1.0
) -> list[SuspendStep]:  # fmt: skip
    """The steps of falling asleep.

    missing  bytes of host buffers that the process does not have yet
    share    of the link's rate, where several GPUs copy at once
    """
    steps = []
    if level == 1:
        steps = [
            SuspendStep("allocate host buffers", costs.pin * missing / GIB, missing),
            SuspendStep("copy weights to the host", process.weights / (profile.link.d2h.value * share) * 1e9, process.weights),
        ]
    return [*steps, SuspendStep("release memory", costs.release, process.allocated)]


def wake(
    profile: Profile, process: Process, level: int, files: str, costs: SleepCosts, share: float = 1.0
) -> list[SuspendStep]:  # fmt: skip
    """The steps of waking up.  files: one of FILES, for level 2."""
    size = process.weights
    mapped = SuspendStep("map memory", costs.map * process.allocated / GIB, process.allocated)
    if level == 1:
        return [mapped, SuspendStep("copy weights to the GPU", size / (profile.link.h2d.value * share) * 1e9, size)]
    rate = READ_RATE if files == FILES[0] else min(READ_RATE, profile.nvme.read.value)
    return [
        mapped,
        SuspendStep("start to load", costs.load, 0),
        SuspendStep(f"read files from {'the page cache' if files == FILES[0] else 'the SSD'}", size / rate * 1e9, size),
        SuspendStep("copy weights to the GPU, pageable", size / (profile.host.pageable_h2d.value * share) * 1e9, size),
    ]


def checkpoint(profile: Profile, process: Process, drain: float = 0.0) -> list[SuspendStep]:
    """The steps of `cuda-checkpoint` that take a process off the GPU.  drain: ns until its submitted work is done."""
    size = process.allocated + profile.context.value
    return [
        SuspendStep("lock and drain", drain, 0),
        SuspendStep("first touch of host memory", profile.allocation.host_alloc_per_gib.value * size / GIB, size),
        SuspendStep("copy to the host, pageable", size / profile.host.pageable_d2h.value * 1e9, size),
        SuspendStep("release memory", profile.allocation.free_per_gib.value * size / GIB, size),
    ]


def restore(profile: Profile, process: Process) -> list[SuspendStep]:
    """The steps that bring it back."""
    size = process.allocated + profile.context.value
    return [
        SuspendStep("allocate memory", profile.allocation.malloc_per_gib.value * size / GIB, size),
        SuspendStep("copy to the GPU, pageable", size / profile.host.pageable_h2d.value * 1e9, size),
    ]
