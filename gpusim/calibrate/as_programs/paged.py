"""Managed memory: the tests of `measure.managed`, and triads on managed arrays, as programs for the driver's model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gpusim.calibrate.as_programs.row_program import Cannot
from gpusim.calibrate.rows import Row
from gpusim.engine.pages.simulate import simulate_uvm
from gpusim.machine.driver_parameters import BLOCK_BYTES
from gpusim.machine.platforms import Platform, of
from gpusim.machine.profile import Profile
from gpusim.programs.managed.patterns import streaming
from gpusim.programs.managed.steps import Advise, Array, HostTouch, Kernel, Prefetch, Start, Step

_THREADS = 1024  # of a thread block, as many blocks as the device holds
_LARGE = 1 << 30  # bytes from which a thread of a triad stands for sixteen: nothing of it faults
_CPU, _GPU = 0, 1


@dataclass(frozen=True)
class Managed:
    """A program whose memory the driver manages; what is timed begins with `Start`."""

    arrays: tuple[Array, ...]
    steps: tuple[Step, ...]
    uses: tuple[str, ...]
    moved: float
    memory: int | None = None
    """Bytes of the device for managed memory; None: all that it has."""
    flops: float = 0.0


def managed(row: Row, profile: Profile) -> Managed | Cannot:
    """The row's program."""
    size, platform = row.size_bytes or 0, of(profile)
    if row.metric == "um_triad_bw":
        return _triad(size, platform)
    made = _steps(row, size, platform)
    if made is None:
        return Cannot("allocating and freeing managed memory is free in the driver's model")
    before, timed, uses = made
    if size > platform.memory:
        return Cannot("more managed memory than the device holds, which the tests never ask for")
    return Managed((Array("a", size),), (*before, Start(), timed), tuple(f"paging.{name}" for name in uses), size)


def ns(made: Managed, profile: Profile) -> float:
    """From `Start` to the end."""
    return simulate_uvm(made.arrays, made.steps, of(profile, made.memory)).ns


def _steps(row: Row, size: int, platform: Platform) -> tuple[Sequence[Step], Step, tuple[str, ...]] | None:
    """What comes before, what is timed, and the numbers of the section `paging` that decide it."""
    write, read, from_cpu = sweep("a", size, 4, platform, write=True), sweep("a", size, 16, platform), HostTouch("a")
    hints: dict[str, Sequence[Step]] = {
        "read_mostly": (Advise("a", "read_mostly"),),
        "preferred_host": (Advise("a", "preferred_location", _CPU), Advise("a", "accessed_by", _GPU)),
    }
    hint = row.params.get("hint", "none")
    known: dict[str, tuple[Sequence[Step], Step, tuple[str, ...]]] = {
        "managed_first_touch_bw": ((), write, ("first_touch", "batch")),
        "managed_gpu_read_bw": (
            (from_cpu, *hints.get(hint, ())), read,
            ("remote_rate",) if hint == "preferred_host" else ("page", "batch", "first_touch", "rate_h2d"),
        ),
        "managed_cpu_read_bw": ((write,), HostTouch("a", write=False), ("cpu_fault", "page", "rate_d2h")),
        "managed_prefetch_h2d_bw": ((from_cpu,), Prefetch("a", _GPU), ("rate_h2d", "start_h2d")),
        "managed_prefetch_d2h_bw": ((write,), Prefetch("a", _CPU), ("rate_d2h", "start_d2h")),
    }  # fmt: skip
    return known.get(row.metric)


def sweep(array: str, size: int, width: int, platform: Platform, write: bool = False) -> Kernel:
    """A full device goes over an array once, neighbouring threads side by side."""
    return _kernel([(array, write)], size, width, platform)


def _kernel(arrays: Sequence[tuple[str, bool]], size: int, width: int, platform: Platform) -> Kernel:
    blocks = platform.sms * max(1, platform.warps * 32 // _THREADS)
    threads = blocks * _THREADS
    accesses = [streaming(name, _THREADS, threads=threads, write=write, size=width) for name, write in arrays]
    return Kernel("sweep", accesses, (blocks, 1), (_THREADS, 1), (-(-size // (threads * width)), 1))


def _triad(size: int, platform: Platform) -> Managed:
    """Over and over, so that all lies where the pass before has left it; `size` is that of the three arrays.

    What exceeds the device runs on one of a GiB, by the same factor: the rate is the same, to the third digit on 4 GiB.
    """
    exceeds = size > platform.memory
    memory = _LARGE if exceeds else None
    each = (int(size / platform.memory * _LARGE) if exceeds else size) // 3 // BLOCK_BYTES * BLOCK_BYTES
    arrays = tuple(Array(name, each) for name in "abc")
    triad = _kernel([("b", False), ("c", False), ("a", True)], each, 8 if exceeds or size < _LARGE else 128, platform)
    there = () if exceeds else tuple(Prefetch(name, _GPU) for name in "abc")
    uses = ("paging.page", "paging.rate_h2d", "paging.rate_d2h") if exceeds else ("memory.copy",)
    return Managed(arrays, (*there, triad, Start(), triad), uses, 3 * each, memory)
