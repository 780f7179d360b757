"""How long a measurement takes, without a GPU: all groups against a driver that only lets time pass.

Device and driver take what an H200's published numbers say (`RATES`, `CALLS`); what the host does between their calls it does
here, and takes what it takes here.  Nothing is copied on the device, and nothing is compared.
"""

from __future__ import annotations

import ctypes
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import numpy as np

from gpusim.base.errors import MeasurementError
from gpusim.calibrate.measure.cuda import Cuda
from gpusim.calibrate.measure.session import GROUPS, QUICK, WITHOUT_GPU, groups_of, measure

FREE = 140 << 30
ATTRIBUTES = {
    "MULTIPROCESSOR_COUNT": 132, "L2_CACHE_SIZE": 50 << 20, "MAX_THREADS_PER_MULTIPROCESSOR": 2048,
    "CONCURRENT_MANAGED_ACCESS": 1, "COMPUTE_CAPABILITY_MAJOR": 9, "COMPUTE_CAPABILITY_MINOR": 0,
}  # fmt: skip
RATES = {"link": 55.0, "engine": 2000.0, "kernel": 4000.0, "in place": 50.0, "faults": 4.0, "flops": 60_000.0}
"""Bytes (or flops) per ns: PCIe 5.0 x16, copies in HBM3e counted once, kernels in it, kernels on host memory, managed memory
that faults, fp32."""
CALLS = {
    "cuMemAlloc": 136e3, "cuMemFree": 175e3, "cuMemFreeHost": 200e3, "cuMemPoolTrimTo": 100e3,
    "cuMemCreate": 29e3, "cuMemSetAccess": 38e3, "cuMemUnmap": 34e3, "cuMemRelease": 23e3,
    "cuGraphInstantiate": 100e3, "nvrtcCompileProgram": 1e9, "cuModuleLoadData": 5e6, "cuDevicePrimaryCtxRetain": 300e6,
}  # fmt: skip
"""Call -> ns; others take CALL."""
CALL, START, LOAD, PIN = 1000, 2000, 600, 0.11
"""ns of a call, of an operation's start on the device, of a load in a chain, and of pinning a byte."""


_STRUCTURES = ("CUmemAllocationProp", "CUmemAccessDesc", "CUmemLocation")


class _Names:
    """An enumeration of the driver: each name is itself."""

    def __getattr__(self, name: str) -> Any:
        return SimpleNamespace(value=1, name=name)


class Driver:
    """`Cuda(driver, driver)`: calls succeed and take their time; `clock` is the host's, ahead by what was waited for."""

    cuuint64_t = int

    def __init__(self) -> None:
        self.ahead = 0.0
        self.next = 1 << 40  # address of the next device memory
        self.managed: dict[int, np.ndarray] = {}
        self.pinned: dict[int, np.ndarray] = {}
        self.capturing: float | None = None
        self.result = (0, 0, 0)  # what the kernel before left for the host to read

    def clock(self) -> int:
        return time.perf_counter_ns() + int(self.ahead)

    def __getattr__(self, name: str) -> Any:
        if name.startswith(("cu", "nvrtc")):
            return lambda *_: self._spend(CALLS.get(name, CALL))
        return (lambda: SimpleNamespace(location=SimpleNamespace())) if name in _STRUCTURES else _Names()

    def _spend(self, ns: float, *values: Any) -> tuple[Any, ...]:
        self.ahead += ns
        return (0, *(values or (1,)))

    def _run(self, stream: SimpleNamespace, ns: float) -> tuple[Any, ...]:
        """An operation of a stream."""
        if self.capturing is not None:
            self.capturing += START / 2 + ns
        else:
            stream.time = max(stream.time, self.clock()) + START + ns
        return self._spend(CALL)

    def cuDeviceGetCount(self) -> tuple[Any, ...]:
        return 0, 1

    def cuDeviceGetName(self, *_: Any) -> tuple[Any, ...]:
        return 0, b"NVIDIA H200\0"

    def cuDeviceGetPCIBusId(self, *_: Any) -> tuple[Any, ...]:
        return 0, b"0000:00:00.0\0"

    def cuDeviceGetAttribute(self, attribute: Any, device: Any) -> tuple[Any, ...]:
        return 0, ATTRIBUTES[attribute.name.removeprefix("CU_DEVICE_ATTRIBUTE_")]

    def cuMemGetInfo(self) -> tuple[Any, ...]:
        return 0, FREE, FREE

    def cuMemGetAllocationGranularity(self, *_: Any) -> tuple[Any, ...]:
        return 0, 2 << 20

    def cuModuleGetFunction(self, module: Any, name: bytes) -> tuple[Any, ...]:
        return 0, name.decode()

    def nvrtcVersion(self) -> tuple[Any, ...]:
        return 0, 13, 0

    def nvrtcGetSupportedArchs(self) -> tuple[Any, ...]:
        return 0, [90]

    def cuMemAlloc(self, size: int) -> tuple[Any, ...]:
        self.next += size
        return self._spend(CALLS["cuMemAlloc"], self.next - size)

    def cuMemHostAlloc(self, size: int, flags: int) -> tuple[Any, ...]:
        data = np.zeros(size + 16, np.uint8)
        self.pinned[data.ctypes.data] = data
        return self._spend(PIN * size, data.ctypes.data)

    def cuMemFreeHost(self, address: int) -> tuple[Any, ...]:
        self.pinned.pop(address)
        return self._spend(CALLS["cuMemFreeHost"])

    def cuMemAllocManaged(self, size: int, flags: int) -> tuple[Any, ...]:
        data = np.zeros(size + 16, np.uint8)
        self.managed[data.ctypes.data] = data
        return self._spend(CALL, data.ctypes.data)

    def cuMemFree(self, address: int) -> tuple[Any, ...]:
        self.managed.pop(address, None)
        return self._spend(CALLS["cuMemFree"])

    def cuStreamCreate(self, flags: int) -> tuple[Any, ...]:
        return self._spend(CALL, SimpleNamespace(time=0.0))

    def cuStreamSynchronize(self, stream: SimpleNamespace) -> tuple[Any, ...]:
        self.ahead += max(0.0, stream.time - self.clock())
        return self._spend(CALL)

    def cuStreamWaitEvent(self, stream: SimpleNamespace, event: SimpleNamespace, flags: int) -> tuple[Any, ...]:
        stream.time = max(stream.time, event.time)
        return self._spend(CALL)

    def cuEventCreate(self, flags: int) -> tuple[Any, ...]:
        return self._spend(CALL, SimpleNamespace(time=0.0))

    def cuEventRecord(self, event: SimpleNamespace, stream: SimpleNamespace) -> tuple[Any, ...]:
        event.time = max(stream.time, self.clock())
        return self._spend(CALL)

    def cuEventElapsedTime(self, begin: SimpleNamespace, end: SimpleNamespace) -> tuple[Any, ...]:
        return 0, (end.time - begin.time) / 1e6

    def cuMemcpyHtoDAsync(self, to: int, of: int, size: int, stream: SimpleNamespace) -> tuple[Any, ...]:
        return self._run(stream, size / RATES["link"])

    def cuMemcpyDtoHAsync(self, to: int, of: int, size: int, stream: SimpleNamespace) -> tuple[Any, ...]:
        return self._run(stream, size / RATES["link"])

    def cuMemcpyDtoDAsync(self, to: int, of: int, size: int, stream: SimpleNamespace) -> tuple[Any, ...]:
        return self._run(stream, size / RATES["engine"])

    def cuMemPrefetchAsync(self, at: int, size: int, place: Any, stream: SimpleNamespace) -> tuple[Any, ...]:
        return self._run(stream, size / RATES["link"])

    def cuMemcpyHtoD(self, to: int, of: int, size: int) -> tuple[Any, ...]:
        return self._spend(START + size / RATES["link"])

    def cuMemcpyDtoH(self, to: int, of: int, size: int) -> tuple[Any, ...]:
        ctypes.memset(to, 0, size)
        if size == 8 * len(self.result):
            ctypes.memmove(to, (ctypes.c_uint64 * len(self.result))(*self.result), size)
        return self._spend(START + size / RATES["link"])

    def cuStreamBeginCapture(self, *_: Any) -> tuple[Any, ...]:
        self.capturing = 0.0
        return self._spend(CALL)

    def cuStreamEndCapture(self, stream: SimpleNamespace) -> tuple[Any, ...]:
        graph, self.capturing = self.capturing, None
        return self._spend(CALL, graph)

    def cuGraphInstantiate(self, graph: float, flags: int) -> tuple[Any, ...]:
        return self._spend(CALLS["cuGraphInstantiate"], graph)

    def cuGraphLaunch(self, graph: float, stream: SimpleNamespace) -> tuple[Any, ...]:
        return self._run(stream, graph)

    def cuLaunchKernel(self, name: str, *rest: Any) -> tuple[Any, ...]:
        stream, packed = rest[7], rest[8]
        return self._run(stream, self._kernel(name, packed[0] if packed else ()))

    def _kernel(self, name: str, v: tuple[Any, ...]) -> float:
        """ns of a kernel with these arguments."""
        if name.startswith("stream_"):
            arrays = {"read": 1, "write": 1, "copy": 2, "triad": 3}[name[7:]]
            return float(arrays * 16 * v[arrays] * v[arrays + 1] / self._rate(*v[:arrays]))
        if name.startswith("chase"):
            self.result = (0, 2 * LOAD * v[1], LOAD * v[1])
            return LOAD * float(v[1])
        if name.startswith("touch_"):
            return float(int(name.rsplit("_", 1)[1]) * v[1] / self._rate(v[0]))
        if name == "gemm_fp32":
            return float(2 * v[3] ** 3 / RATES["flops"])
        if name in ("fill", "count_wrong"):
            return float(4 * v[1] / self._rate(v[0]))
        if name == "fma_sweep":
            return float(max(16 * v[1] / RATES["kernel"], 8.0 * v[2] * v[1] / RATES["flops"]))
        return float(3 * 16 * v[2] / RATES["kernel"]) if name == "elementwise" else 0.0

    def _rate(self, *addresses: int) -> float:
        if any(self._in(self.managed, a) for a in addresses):
            return RATES["faults"]
        return RATES["in place" if any(self._in(self.pinned, a) for a in addresses) else "kernel"]

    @staticmethod
    def _in(blocks: dict[int, np.ndarray], address: int) -> bool:
        return any(base <= address < base + len(data) for base, data in blocks.items())


def rehearse(quick: bool, only: list[str] | None = None) -> list[dict[str, Any]]:
    """A row for each group of `only`, or each at all: the seconds that it takes, and those after which it begins no new point.

    Peers need a second GPU; host and disk, which are not rehearsed, count with all that they may take.
    """
    made = Driver()
    with TemporaryDirectory() as folder:
        names = groups_of(only or [])
        on_gpu = [name for name in names if name not in WITHOUT_GPU]
        found = measure(
            Path(folder) / "m.csv", on_gpu, quick=quick, say=lambda text: None, clock=made.clock,
            load=lambda: (Cuda(made, made), None), compared=False,
        )  # fmt: skip
    left_out = found.get("left_out", {})
    failed = [f"{name}: {left_out[name]}" for name in on_gpu if name in left_out and name != "peers"]
    if failed:
        raise MeasurementError("; ".join(failed))
    rows: list[dict[str, Any]] = []
    for name in names:
        most = GROUPS[name][0] / (QUICK if quick else 1)
        cut = sum(what.startswith(f"{name}: ") and "time was used up" in why for what, why in left_out.items())
        seconds = found["seconds"].get(name, 0.0 if name == "peers" else most)
        rows.append({"group": name, "seconds": round(seconds, 1), "limit": round(most, 1), "points not reached": cut})
    begun = found["total_seconds"] - sum(found["seconds"].values())
    rows.append({"group": "beginning", "seconds": round(begun, 1), "limit": "", "points not reached": 0})
    return rows
