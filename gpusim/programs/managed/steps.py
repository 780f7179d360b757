"""What runs under unified memory: allocations, and what the program does with them, in its order."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import cached_property
from typing import Any, Literal, TypeGuard, get_args

import numpy as np
import numpy.typing as npt

from gpusim.machine.driver_parameters import BLOCK_BYTES
from gpusim.programs.managed.pattern import LANES, SECTOR

PAGE = 4096  # beyond which two accesses have no row of DRAM and no entry of a TLB in common


@dataclass(frozen=True)
class Array:
    """An allocation; `at` bytes behind the start of a window of 2 MiB (small allocations share one)."""

    name: str
    bytes: int
    at: int = 0
    kind: Literal["managed", "system", "device"] = "managed"  # by malloc, which GPUs reach by ATS or HMM; by cudaMalloc


@dataclass(frozen=True)
class Access:
    """One access of every thread in every step; see `pattern.py` for the index.  Strides are in elements."""

    array: str
    write: bool = False
    bytes: int = 4
    start: int = 0
    tx: int = 0
    ty: int = 0
    bx: int = 0
    by: int = 0
    inner: int = 0
    outer: int = 0
    index: npt.NDArray[np.int64] | None = field(default=None, compare=False)  # gather: the element is index[position], -1 none
    random: int | None = None                            # random: the seed
    wraps: bool = False
    elements: int | None = None                          # of the array that the index may reach; all of it
    waits: bool | None = None                            # for the warp's earlier accesses; stores do, loads do not


@dataclass(frozen=True)
class Kernel:
    name: str
    accesses: Sequence[Access]
    grid: tuple[int, int]
    block: tuple[int, int] = (256, 1)
    steps: tuple[int, int] = (1, 1)  # inner, outer
    ns: float | None = None          # without faults; None: what its accesses take at the memory's rate
    gpu: int = 1
    stream: int = 0                  # of its GPU: kernels of one go one after the other, those of several side by side
    where: str = field(default="", compare=False)  # "file:line" of a program that was read
    operator: int = field(default=-1, compare=False)  # of the trace that the program was made from
    flops: float = 0.0               # of fp32, where its accesses are not all that takes time


@dataclass(frozen=True)
class HostTouch:
    """The CPU reads or writes bytes [first, first + count) of an array, ascending; all of it when count is None.

    after  streams for which the program waits before, (): for none of them; None: for all kernels before
    """

    array: str
    write: bool = True
    first: int = 0
    count: int | None = None
    where: str = field(default="", compare=False)
    after: tuple[int, ...] | None = None


@dataclass(frozen=True)
class Prefetch:
    """cudaMemPrefetchAsync, and waiting for it; processor 0 is the CPU.

    stream  of GPU `gpu`, in which it takes its turn, while the program goes on; None: the program waits
    """

    array: str
    to: int = 1
    first: int = 0
    count: int | None = None
    where: str = field(default="", compare=False)
    stream: int | None = None
    gpu: int = 1


Hint = Literal[
    "read_mostly", "unset_read_mostly", "preferred_location", "unset_preferred_location", "accessed_by", "unset_accessed_by"
]  # fmt: skip
ADVICE: tuple[str, ...] = get_args(Hint)


@dataclass(frozen=True)
class Advise:
    """cudaMemAdvise for all of an array; `after` as of HostTouch."""

    array: str
    advice: str
    processor: int = 1
    where: str = field(default="", compare=False)
    after: tuple[int, ...] | None = None


@dataclass(frozen=True)
class Discard:
    """cuMemDiscardBatchAsync: what an array holds is not needed any more; `after` as of HostTouch."""

    array: str
    first: int = 0
    count: int | None = None
    where: str = field(default="", compare=False)
    after: tuple[int, ...] | None = None


@dataclass(frozen=True)
class Free:
    """cudaFree, which waits for all kernels before."""

    array: str
    where: str = field(default="", compare=False)


@dataclass(frozen=True)
class Start:
    """From here on a run is timed and counted; what stands before brings the data to where it begins."""


@dataclass(frozen=True)
class Wait:
    """cudaDeviceSynchronize on all GPUs: kernels behind it begin when all before have ended, as behind other steps."""


Step = Kernel | HostTouch | Prefetch | Advise | Discard | Free | Start | Wait
Steps = Sequence[Step]


def title(step: Step) -> str:
    """What a step is called where its time is told."""
    if isinstance(step, Kernel):
        return step.name
    if isinstance(step, HostTouch):
        return f"host {'writes' if step.write else 'reads'} {step.array}"
    if isinstance(step, Prefetch | Discard):
        return f"{type(step).__name__.lower()} {step.array}"
    if isinstance(step, Advise):
        return f"advise {step.array} {step.advice}"
    return f"free {step.array}" if isinstance(step, Free) else type(step).__name__.lower()


def on_stream(step: Step) -> TypeGuard[Kernel | Prefetch]:
    """Whether the step takes its turn in a stream of a GPU, which the program does not wait for."""
    return isinstance(step, Kernel) or (isinstance(step, Prefetch) and step.stream is not None)


def waited_for(step: Step) -> TypeGuard[HostTouch | Prefetch | Advise | Discard | Free]:
    """Whether the host does the step on the clock of the GPUs, and the program goes on when it is over."""
    if isinstance(step, Prefetch):
        return step.stream is None
    return isinstance(step, HostTouch | Advise | Discard | Free)


def reach(steps: Steps, first: int, gpus: int) -> int:
    """How far the program gets from step `first` on until the clock of its GPUs has to stop: up to a step that is on none.

    Of several GPUs none goes on beside what the program waits for, but what it does not wait for before.
    """
    at = first
    while at < len(steps) and (on_stream(steps[at]) or waited_for(steps[at])):
        if gpus > 1 and waited_for(steps[at]):
            beside = getattr(steps[at], "after", None) is not None
            return at + 1 if beside or at == first else at
        at += 1
    return at


def gpus_of(steps: Steps) -> int:
    """How many GPUs the steps name."""
    own = [step.gpu for step in steps if on_stream(step)]
    named = [step.to if isinstance(step, Prefetch) else step.processor for step in steps if isinstance(step, Prefetch | Advise)]
    return max([1, *own, *named])


# What programs did not have to say at first.
UNSAID = {
    (Kernel, "stream"): 0, (Prefetch, "stream"): None, (Prefetch, "gpu"): 1, (HostTouch, "after"): None,
    (Advise, "after"): None, (Discard, "after"): None,
}  # fmt: skip


@dataclass(frozen=True)
class ManagedProgram:
    """A program whose memory the driver manages: what `traces/programs/NAME.yaml` says, or Python makes."""

    name: str
    arrays: Sequence[Array]
    steps: Steps

    @property
    def footprint(self) -> int:
        """Bytes of GPU memory that hold everything at once: root chunks of 2 MiB, which are what is given out."""
        return sum(-(-(a.at + a.bytes) // BLOCK_BYTES) for a in self.arrays) * BLOCK_BYTES

    @cached_property
    def content_hash(self) -> str:
        """SHA-256 over arrays and steps, files of indices that they were made from included: the program's identity."""
        return hashlib.sha256(_content(self)).hexdigest()


def _unsaid(value: Any, name: str) -> bool:
    return (type(value), name) in UNSAID and getattr(value, name) == UNSAID[type(value), name]


def _content(value: Any) -> bytes:
    """Everything that a program does, but not where that was written or recorded."""
    if isinstance(value, np.ndarray):
        return str(value.dtype).encode() + value.tobytes()
    if is_dataclass(value):
        return type(value).__name__.encode() + b"".join(
            f"{f.name}=".encode() + _content(getattr(value, f.name)) + b";"
            for f in fields(value)
            if f.name not in ("where", "operator") and not _unsaid(value, f.name)
        )
    if isinstance(value, list | tuple):
        return b"[" + b",".join(map(_content, value)) + b"]"
    return repr(value).encode()


def moved_bytes(accesses: Sequence[Access], kernel: Kernel, l2: int = 0) -> float:
    """Bytes that the kernel's threads move: the sectors that a row of a warp's threads touches.

    Loads that another thread does less than `l2` bytes further, as those of a stencil are, find their sectors in the cache.
    """
    accesses = [a for k, a in enumerate(accesses) if not any(_neighbours(a, b, l2) for b in accesses[:k])]
    threads = kernel.grid[0] * kernel.grid[1] * kernel.block[0] * kernel.block[1]
    lanes = min(LANES, kernel.block[0])
    return sum(_bytes_each(a, lanes) for a in accesses) * threads * kernel.steps[0] * kernel.steps[1]


def _neighbours(a: Access, b: Access, l2: int) -> bool:
    """Do two loads differ only in where they begin, by less than so many bytes?"""
    if a.write or b.write or a.index is not None or b.index is not None or a.random is not None:
        return False
    return replace(a, start=b.start) == b and abs(a.start - b.start) * a.bytes < l2


def scattered_sectors(accesses: Sequence[Access], kernel: Kernel) -> float:
    """Sectors that lie in another page than what the thread beside touches, and than what the same thread touched before."""
    threads = kernel.grid[0] * kernel.grid[1] * kernel.block[0] * kernel.block[1]
    loops = kernel.steps[0] > 1
    return sum(_alone(a, loops) * -(-a.bytes // SECTOR) for a in accesses) * threads * kernel.steps[0] * kernel.steps[1]


def _alone(a: Access, loops: bool) -> float:
    """Share of the threads whose access lies a page or more away from the one of the thread before."""
    if a.index is not None:
        if not a.index.size:
            return 0.0
        away = np.abs(np.diff(a.index, prepend=-PAGE)) * a.bytes >= PAGE
        return float(np.mean(away & (a.index >= 0)))
    steps_on = not loops or abs(a.inner) * a.bytes >= PAGE
    return float(a.random is not None or (abs(a.tx) * a.bytes >= PAGE and steps_on))


def _bytes_each(a: Access, lanes: int) -> float:
    """Bytes that move for one of `lanes` threads in a row."""
    alone = -(-a.bytes // SECTOR) * SECTOR
    if a.index is not None:
        if not a.index.size:
            return 0.0
        sector = a.index * a.bytes // SECTOR
        new = np.append(True, sector[1:] != sector[:-1])
        new[::lanes] = True
        return alone * float(np.mean(new & (a.index >= 0)))
    pitch = abs(a.tx) * a.bytes
    if a.random is not None or pitch >= a.bytes + SECTOR:
        return alone
    return -(-((lanes - 1) * pitch + a.bytes) // SECTOR) * SECTOR / lanes
