"""One opened GPU: its context, buffers, launches, and time as its events tell it."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt

from gpusim.base.errors import MeasurementError
from gpusim.calibrate.measure import kernels
from gpusim.calibrate.measure.cuda import Cuda

Bytes = npt.NDArray[np.uint8]
SPIN_LIMIT = 2_000_000_000
"""ns after which a spin kernel gives up, so that a mistake cannot hang the GPU."""
U32, U64, I32, F32 = ctypes.c_uint32, ctypes.c_uint64, ctypes.c_int32, ctypes.c_float


class OpenGpu:
    """The primary context of a device; addresses are plain numbers."""

    def __init__(self, cuda: Cuda, ordinal: int, image: bytes | None = None) -> None:
        self.cuda = cuda
        self.ordinal = ordinal
        self.device = cuda.cuDeviceGet(ordinal)
        self.sms = cuda.attribute(self.device, "MULTIPROCESSOR_COUNT")
        self.l2 = cuda.attribute(self.device, "L2_CACHE_SIZE")
        self.threads_per_sm = cuda.attribute(self.device, "MAX_THREADS_PER_MULTIPROCESSOR")
        major, minor = (cuda.attribute(self.device, f"COMPUTE_CAPABILITY_{part}") for part in ("MAJOR", "MINOR"))
        self.capability = 10 * major + minor
        self.image = image or kernels.compile_for(cuda, self.capability)
        self.context = cuda.cuDevicePrimaryCtxRetain(self.device)
        self.enter()
        self.module = cuda.cuModuleLoadData(self.image)
        self.functions = {name: cuda.cuModuleGetFunction(self.module, name.encode()) for name in kernels.KERNELS}
        self.stream, self.other = self.new_stream(), self.new_stream()
        self.begin, self.end, self.go = (cuda.cuEventCreate(0) for _ in range(3))
        self.flag_address, self.flag_bytes = self._host(8)
        self.flag = self.flag_bytes.view(np.int32)
        self.scratch = self._allocate(64)

    def close(self) -> None:
        """Give the context back, with all that is in it."""
        self.enter()
        self.cuda.cuCtxSynchronize()
        self.cuda.cuMemFreeHost(self.flag_address)
        self.cuda.cuMemFree(self.scratch)
        self.cuda.cuModuleUnload(self.module)
        self.cuda.cuDevicePrimaryCtxRelease(self.device)

    def enter(self) -> None:
        """Make it the device that calls of this thread mean."""
        self.cuda.cuCtxSetCurrent(self.context)

    def new_stream(self) -> Any:
        """One that waits for no other."""
        return self.cuda.cuStreamCreate(self.cuda.api.CUstream_flags.CU_STREAM_NON_BLOCKING.value)

    def free_bytes(self) -> int:
        return int(self.cuda.cuMemGetInfo()[0])

    def _allocate(self, size: int) -> int:
        return int(self.cuda.cuMemAlloc(size))

    def _host(self, size: int) -> tuple[int, Bytes]:
        # 1: every context may use it (PORTABLE), 2: the device may address it (DEVICEMAP).
        address = int(self.cuda.cuMemHostAlloc(size, 1 | 2))
        return address, view(address, size)

    @contextmanager
    def buffer(self, size: int) -> Iterator[int]:
        """Device memory."""
        address = self._allocate(size)
        try:
            yield address
        finally:
            self.cuda.cuMemFree(address)

    @contextmanager
    def pinned(self, size: int) -> Iterator[Bytes]:
        """Host memory that every device may read and write, at the same address."""
        address, data = self._host(size)
        try:
            yield data
        finally:
            self.cuda.cuMemFreeHost(address)

    def launch(
        self, name: str, blocks: int | tuple[int, int], threads: int, *args: Any, stream: Any = None, shared: int = 0
    ) -> None:
        """Start a kernel with arguments of ctypes."""
        x, y = blocks if isinstance(blocks, tuple) else (blocks, 1)
        packed = (tuple(a.value for a in args), tuple(type(a) for a in args)) if args else 0
        stream = self.stream if stream is None else stream
        self.cuda.cuLaunchKernel(self.functions[name], x, y, 1, threads, 1, 1, shared, stream, packed, 0)

    def blocks(self, threads: int = 1024) -> int:
        """As many blocks as run at once."""
        return self.sms * max(1, self.threads_per_sm // threads)

    def fill(self, address: int, size: int, seed: int = 1) -> None:
        """Write the pattern that `verify` and `pattern` know."""
        self.launch("fill", self.blocks(), 1024, U64(address), U64(size // 4), U32(seed))

    def verify(self, address: int, size: int, what: str, seed: int = 1) -> None:
        """Raise MeasurementError unless the pattern is there."""
        self.cuda.cuMemsetD8Async(self.scratch, 0, 8, self.stream)
        self.launch("count_wrong", self.blocks(), 1024, U64(address), U64(size // 4), U32(seed), U64(self.scratch))
        wrong = int(self.words(self.scratch, 1)[0])
        if wrong:
            raise MeasurementError(f"{what}: {wrong} of {size // 4} words arrived wrong; nothing of this is trusted")

    def words(self, address: int, count: int) -> npt.NDArray[np.uint64]:
        """Read 64-bit words of the device after all that was started."""
        self.cuda.cuStreamSynchronize(self.stream)
        out = np.empty(count, np.uint64)
        self.cuda.cuMemcpyDtoH(out.ctypes.data, address, 8 * count)
        return out

    def write(self, address: int, data: npt.NDArray[Any]) -> None:
        """Write to the device; all of it is there afterwards.

        A copy from pageable memory returns once the data are staged, and streams that wait for no other may begin before the
        rest of the way is done.
        """
        self.cuda.cuMemcpyHtoD(address, data.ctypes.data, data.nbytes)
        self.cuda.cuCtxSynchronize()

    def synchronize(self) -> None:
        self.cuda.cuStreamSynchronize(self.stream)

    def queued(self, enqueue: Callable[[int], None], count: int, beside: Callable[[int], None] | None = None) -> float:
        """Device time in ns of one of `count` operations that queue behind a spin kernel until all are submitted.

        beside  what the stream `other` does twice as often in the meantime
        """
        cuda = self.cuda
        self.flag[0] = 0
        self.launch("spin", 1, 1, U64(self.flag_address), U64(SPIN_LIMIT))
        try:
            if beside:
                cuda.cuEventRecord(self.go, self.stream)
                cuda.cuStreamWaitEvent(self.other, self.go, 0)
            cuda.cuEventRecord(self.begin, self.stream)
            for i in range(count):
                enqueue(i)
                if beside:
                    beside(2 * i)
                    beside(2 * i + 1)
            cuda.cuEventRecord(self.end, self.stream)
        finally:
            self.flag[0] = 1
        cuda.cuStreamSynchronize(self.stream)
        if beside:
            cuda.cuStreamSynchronize(self.other)
        return float(cuda.cuEventElapsedTime(self.begin, self.end)) * 1e6 / count

    def at_once(self, enqueue: Callable[[int, Any], None], streams: Sequence[Any]) -> float:
        """Device time in ns until operation i on stream i, released together, are all done."""
        cuda = self.cuda
        done = [cuda.cuEventCreate(0) for _ in streams]
        self.flag[0] = 0
        self.launch("spin", 1, 1, U64(self.flag_address), U64(SPIN_LIMIT))
        try:
            cuda.cuEventRecord(self.begin, self.stream)
            for i, stream in enumerate(streams):
                cuda.cuStreamWaitEvent(stream, self.begin, 0)
                enqueue(i, stream)
                cuda.cuEventRecord(done[i], stream)
                cuda.cuStreamWaitEvent(self.stream, done[i], 0)
            cuda.cuEventRecord(self.end, self.stream)
        finally:
            self.flag[0] = 1
        cuda.cuStreamSynchronize(self.stream)
        for event in done:
            cuda.cuEventDestroy(event)
        return float(cuda.cuEventElapsedTime(self.begin, self.end)) * 1e6


def view(address: int, size: int) -> Bytes:
    """The bytes of host memory at an address."""
    return np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(address))


def pattern(size: int, seed: int = 1) -> npt.NDArray[np.uint32]:
    """What `Gpu.fill` writes into so many bytes."""
    return np.arange(size // 4, dtype=np.uint32) * np.uint32(2654435761) + np.uint32(seed)
