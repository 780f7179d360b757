"""What every group of tests is given: the GPU, the recorder, and how much memory it may take."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from gpusim.calibrate.measure.gpu import OpenGpu
from gpusim.calibrate.measure.recorder import Recorder

KiB, MiB, GiB = 1 << 10, 1 << 20, 1 << 30


@dataclass
class Bench:
    """One machine under test.

    gpu     None where only the host and the disk are measured
    room    bytes of free device memory that tests may take in all
    folder  on the disk to measure
    """

    out: Recorder
    gpu_or_none: OpenGpu | None = None
    room: int = 0
    folder: Path = Path(".")
    near: set[int] = field(default_factory=lambda: os.sched_getaffinity(0))
    """The CPUs next to the GPU."""

    @property
    def gpu(self) -> OpenGpu:
        assert self.gpu_or_none is not None, "this group needs a GPU"
        return self.gpu_or_none

    def most(self, wanted: int, buffers: int, what: str, pinned: bool = False) -> int:
        """The largest size, `wanted` or a power of two below, of which so many buffers fit; says so when it is less.

        pinned  as much is taken of the host's memory, of which a quarter of what is free may be pinned
        """
        room = min(self.room, free_host() // 4) if pinned else self.room
        size = wanted
        while size * buffers > room and size > 4 * KiB:
            size //= 2
        if size < wanted:
            self.out.shrunk.append(f"{what}: {size} instead of {wanted} bytes, for lack of free memory")
        return size


def free_host() -> int:
    """Bytes of host memory that can still be had, within the limit of the container."""
    free = 16 * GiB
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                free = int(line.split()[1]) * KiB
        limit = Path("/sys/fs/cgroup/memory.max").read_text().strip()
        if limit != "max":
            free = min(free, int(limit) - int(Path("/sys/fs/cgroup/memory.current").read_text()))
    except (OSError, ValueError):
        pass
    return free


def nodes() -> dict[int, set[int]]:
    """NUMA node -> its CPUs that this process may use."""
    allowed = os.sched_getaffinity(0)
    found = {}
    for path in sorted(Path("/sys/devices/system/node").glob("node[0-9]*")):
        cpus: set[int] = set()
        for part in (path / "cpulist").read_text().strip().split(","):
            first, _, last = part.partition("-")
            if first:
                cpus |= set(range(int(first), int(last or first) + 1))
        if cpus & allowed:
            found[int(path.name[4:])] = cpus & allowed
    return found or {0: allowed}


@contextmanager
def on_cpus(cpus: set[int]) -> Iterator[None]:
    """Run there; memory that is touched first in the meantime is near these CPUs."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cpus)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
