"""A CUDA driver, NVRTC and NVML that compute nothing fast: their memory is the host's, their clock is made up.

They measure nothing.  They check what no GPU is needed for: that every call has the arguments that cuda-bindings takes, that
every kernel gets what its source declares, that copies stay inside what was allocated, that nothing waits for a stream that
its own spin kernel still holds, and that times become the right numbers.
"""

from __future__ import annotations

import ctypes
import re
from collections import Counter
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np

from gpusim.calibrate.measure.gpu import pattern
from gpusim.calibrate.measure.kernels import KERNELS, SOURCE

MiB = 1 << 20
READ = 50
"""ns that reading the host's clock takes."""
CALL = 1000
"""ns that every call takes on the host."""
RATES = {"h2d": 25.0, "d2h": 20.0, "local": 500.0, "peer": 100.0, "kernel": 1000.0}
"""Bytes per ns."""
START = 2000
"""ns of device time that every operation takes besides."""
STEP = 600
"""ns of a load in a chain, and twice as many cycles."""
CTYPES = {"u64": ctypes.c_uint64, "u32": ctypes.c_uint32, "int": ctypes.c_int32, "float": ctypes.c_float}


def declared(name: str) -> tuple[type, ...]:
    """The types of a kernel's arguments by its source."""
    touch = re.fullmatch(r"touch_(read|write)_[148]", name)
    if touch:
        return (ctypes.c_uint64, ctypes.c_uint64, ctypes.c_uint64 if touch[1] == "read" else ctypes.c_uint32)
    text = re.search(rf" {name}\(([^)]*)\)", SOURCE)[1]  # type: ignore[index]
    parts = [p.strip() for p in text.split(",") if p.strip()]
    return tuple(ctypes.c_uint64 if "*" in p else CTYPES[p.split()[0]] for p in parts)


@dataclass
class Stream:
    time: float = 0
    held_by: Any = None
    """The flag of a spin kernel."""


@dataclass
class Event:
    time: float = -1


@dataclass
class Fake:
    """`Cuda(fake, fake)`; `fake.now` is the host's clock.  devices: how many there are."""

    devices: int = 1
    free: int = 300 * MiB
    name: bytes = b"NVIDIA H200"
    managed: int = 1
    corrupt: bool = False
    """Copies to the device lose their last byte."""
    now: int = 0
    current: int = -1
    calls: Counter[str] = field(default_factory=Counter)
    kernels: Counter[str] = field(default_factory=Counter)
    blocks: dict[int, np.ndarray] = field(default_factory=dict)
    pageable: dict[int, np.ndarray] = field(default_factory=dict)
    CUresult = int

    def __post_init__(self) -> None:
        names = {"MULTIPROCESSOR_COUNT": 4, "L2_CACHE_SIZE": MiB, "MAX_THREADS_PER_MULTIPROCESSOR": 2048}
        names |= {"COMPUTE_CAPABILITY_MAJOR": 9, "COMPUTE_CAPABILITY_MINOR": 0, "CONCURRENT_MANAGED_ACCESS": self.managed}
        self.attributes = {f"CU_DEVICE_ATTRIBUTE_{k}": v for k, v in names.items()}
        self.CUdevice_attribute = SimpleNamespace(**{k: k for k in self.attributes})
        flag = SimpleNamespace
        self.CUstream_flags = flag(CU_STREAM_NON_BLOCKING=flag(value=1))
        self.CUstreamCaptureMode = flag(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL="local")
        self.CUmemPool_attribute = flag(CU_MEMPOOL_ATTR_RELEASE_THRESHOLD="threshold")
        self.CUmemAllocationType = flag(CU_MEM_ALLOCATION_TYPE_PINNED=1)
        self.CUmemLocationType = flag(CU_MEM_LOCATION_TYPE_DEVICE=1, CU_MEM_LOCATION_TYPE_HOST=2)
        self.CUmemAllocationGranularity_flags = flag(CU_MEM_ALLOC_GRANULARITY_MINIMUM=0)
        self.CUmemAccess_flags = flag(CU_MEM_ACCESS_FLAGS_PROT_READWRITE=3)
        self.CUmemAttach_flags = flag(CU_MEM_ATTACH_GLOBAL=flag(value=1))
        self.CUmem_advise = flag(
            CU_MEM_ADVISE_SET_READ_MOSTLY=1, CU_MEM_ADVISE_SET_PREFERRED_LOCATION=3, CU_MEM_ADVISE_SET_ACCESSED_BY=5
        )
        self.CUdevice_P2PAttribute = flag(CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED=3)
        self.cuuint64_t = int
        self.CUmemAllocationProp = lambda: flag(location=flag(type=0, id=-1), type=0)
        self.CUmemAccessDesc = flag
        self.CUmemLocation = flag
        self.capturing: list[Any] | None = None

    def __getattr__(self, name: str) -> Any:
        if name.startswith(("cu", "nvrtc")):
            raise AttributeError(f"the driver has no {name}, or the fake lacks it")
        raise AttributeError(name)

    def clock(self) -> int:
        """Reading it takes a little, like any clock."""
        self.now += READ
        return self.now

    def spend(self, stream: Stream, ns: float) -> None:
        """An operation of a stream that takes so long on the device."""
        begin = stream.time if stream.held_by is not None else max(stream.time, self.now)
        stream.time = begin + START + ns

    def inside(self, address: Any, size: int) -> np.ndarray:
        """The bytes there; they must belong to one allocation."""
        address = int(address)
        for base, data in (*self.blocks.items(), *self.pageable.items()):
            if base <= address and address + size <= base + len(data):
                return data[address - base : address - base + size]
        raise AssertionError(f"{size} bytes at {address:x} are not allocated")

    def new(self, size: int) -> int:
        data = np.zeros(size + 16, np.uint8)
        self.blocks[data.ctypes.data] = data[:size]
        return data.ctypes.data

    def drop(self, address: Any) -> tuple[int]:
        del self.blocks[int(address)]
        return (0,)

    def wait(self, stream: Stream) -> tuple[int]:
        if stream.held_by is not None:
            assert stream.held_by.view(np.int32)[0] == 1, "waits for a stream that its own spin kernel holds"
            stream.held_by = None
        self.now = int(max(self.now, stream.time))
        return (0,)

    # What follows are the calls, with the arguments of cuda-bindings.

    def cuGetErrorName(self, status: int) -> tuple[int, bytes]:
        return 0, {2: b"CUDA_ERROR_OUT_OF_MEMORY", 100: b"CUDA_ERROR_NO_DEVICE"}.get(status, b"CUDA_ERROR_UNKNOWN")

    def cuInit(self, flags: int) -> tuple[int]:
        return (0 if self.devices else 100,)

    def cuDriverGetVersion(self) -> tuple[int, int]:
        self.now += CALL
        return 0, 12090

    def cuDeviceGetCount(self) -> tuple[int, int]:
        return 0, self.devices

    def cuDeviceGet(self, ordinal: int) -> tuple[int, int]:
        return 0, ordinal

    def cuDeviceGetName(self, length: int, device: int) -> tuple[int, bytes]:
        return 0, self.name.ljust(length, b"\0")

    def cuDeviceGetPCIBusId(self, length: int, device: int) -> tuple[int, bytes]:
        return 0, f"0000:{device:02x}:00.0".encode().ljust(length, b"\0")

    def cuDeviceGetAttribute(self, attribute: str, device: int) -> tuple[int, int]:
        return 0, self.attributes[attribute]

    def cuDevicePrimaryCtxRetain(self, device: int) -> tuple[int, int]:
        return 0, 100 + device

    def cuDevicePrimaryCtxRelease(self, device: int) -> tuple[int]:
        self.calls["release"] += 1
        return (0,)

    def cuCtxSetCurrent(self, context: int) -> tuple[int]:
        self.current = context - 100
        return (0,)

    def cuCtxSynchronize(self) -> tuple[int]:
        return (0,)

    def cuCtxEnablePeerAccess(self, context: int, flags: int) -> tuple[int]:
        assert context - 100 != self.current
        return (0,)

    def cuDeviceCanAccessPeer(self, a: int, b: int) -> tuple[int, int]:
        return 0, 1

    def cuDeviceGetP2PAttribute(self, attribute: int, a: int, b: int) -> tuple[int, int]:
        return 0, 1

    def cuModuleLoadData(self, image: bytes) -> tuple[int, str]:
        assert image == b"cubin"
        return 0, "module"

    def cuModuleUnload(self, module: str) -> tuple[int]:
        return (0,)

    def cuModuleGetFunction(self, module: str, name: bytes) -> tuple[int, str]:
        assert name.decode() in KERNELS
        return 0, name.decode()

    def cuMemGetInfo(self) -> tuple[int, int, int]:
        return 0, self.free, 2 * self.free

    def cuMemAlloc(self, size: int) -> tuple[int, int]:
        self.now += CALL + size // 1000
        return (0, self.new(size)) if size <= self.free else (2, 0)

    def cuMemFree(self, address: int) -> tuple[int]:
        self.now += 2 * CALL
        return self.drop(address)

    def cuMemHostAlloc(self, size: int, flags: int) -> tuple[int, int]:
        assert flags in (0, 3)
        self.now += 5 * CALL
        return 0, self.new(size)

    def cuMemFreeHost(self, address: int) -> tuple[int]:
        return self.drop(address)

    def cuMemAllocManaged(self, size: int, flags: int) -> tuple[int, int]:
        assert flags == 1
        return 0, self.new(size)

    def cuMemAllocAsync(self, size: int, stream: Stream) -> tuple[int, int]:
        self.now += CALL
        return 0, self.new(size)

    def cuMemFreeAsync(self, address: int, stream: Stream) -> tuple[int]:
        self.now += CALL
        return self.drop(address)

    def cuDeviceGetDefaultMemPool(self, device: int) -> tuple[int, str]:
        return 0, "pool"

    def cuMemPoolSetAttribute(self, pool: str, attribute: str, value: int) -> tuple[int]:
        assert attribute == "threshold"
        return (0,)

    def cuMemPoolTrimTo(self, pool: str, keep: int) -> tuple[int]:
        return (0,)

    def cuMemGetAllocationGranularity(self, wanted: Any, option: int) -> tuple[int, int]:
        assert (wanted.type, wanted.location.type) == (1, 1)
        return 0, 2 * MiB

    def cuMemAddressReserve(self, size: int, alignment: int, address: int, flags: int) -> tuple[int, int]:
        assert size % (2 * MiB) == 0
        self.now += CALL
        return 0, 4096

    def cuMemCreate(self, size: int, wanted: Any, flags: int) -> tuple[int, str]:
        self.now += 30 * CALL
        return 0, "block"

    def cuMemMap(self, at: int, size: int, offset: int, handle: str, flags: int) -> tuple[int]:
        assert (at, handle) == (4096, "block")
        self.now += 2 * CALL
        return (0,)

    def cuMemSetAccess(self, at: int, size: int, access: list[Any], count: int) -> tuple[int]:
        assert len(access) == count == 1 and access[0].flags == 3 and access[0].location.id == 0
        self.now += 40 * CALL
        return (0,)

    def cuMemUnmap(self, at: int, size: int) -> tuple[int]:
        self.now += 35 * CALL
        return (0,)

    def cuMemRelease(self, handle: str) -> tuple[int]:
        self.now += 23 * CALL
        return (0,)

    def cuMemAddressFree(self, at: int, size: int) -> tuple[int]:
        self.now += CALL
        return (0,)

    def cuStreamCreate(self, flags: int) -> tuple[int, Stream]:
        assert flags == 1
        return 0, Stream()

    def cuStreamDestroy(self, stream: Stream) -> tuple[int]:
        return (0,)

    def cuStreamSynchronize(self, stream: Stream) -> tuple[int]:
        self.now += CALL
        return self.wait(stream)

    def cuStreamWaitEvent(self, stream: Stream, event: Event, flags: int) -> tuple[int]:
        assert event.time >= 0, "waits for an event that was not recorded"
        stream.time = max(stream.time, event.time)
        return (0,)

    def cuEventCreate(self, flags: int) -> tuple[int, Event]:
        return 0, Event()

    def cuEventDestroy(self, event: Event) -> tuple[int]:
        return (0,)

    def cuEventRecord(self, event: Event, stream: Stream) -> tuple[int]:
        event.time = stream.time if stream.held_by is not None else max(stream.time, self.now)
        return (0,)

    def cuEventElapsedTime(self, begin: Event, end: Event) -> tuple[int, float]:
        assert 0 <= begin.time <= end.time
        return 0, (end.time - begin.time) / 1e6

    def _copy(self, to: Any, of: Any, size: int, stream: Stream, way: str) -> tuple[int]:
        self.now += CALL
        self.spend(stream, size / RATES[way])
        target, source = self.inside(to, size), self.inside(of, size)
        target[:] = source
        if self.corrupt and way == "h2d":
            target[-1] ^= 1
        return (0,)

    def _host(self, address: int, size: int) -> None:
        """Memory of the test's own: pageable."""
        try:
            self.inside(address, size)
        except AssertionError:
            self.pageable[address] = np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(address))

    def cuMemcpyHtoDAsync(self, to: int, of: int, size: int, stream: Stream) -> tuple[int]:
        self._host(of, size)
        return self._copy(to, of, size, stream, "h2d")

    def cuMemcpyDtoHAsync(self, to: int, of: int, size: int, stream: Stream) -> tuple[int]:
        self._host(to, size)
        return self._copy(to, of, size, stream, "d2h")

    def cuMemcpyDtoDAsync(self, to: int, of: int, size: int, stream: Stream) -> tuple[int]:
        return self._copy(to, of, size, stream, "local")

    def cuMemcpyPeerAsync(self, to: int, a: int, of: int, b: int, size: int, stream: Stream) -> tuple[int]:
        assert {a, b} == {100, 101}
        return self._copy(to, of, size, stream, "peer")

    def cuMemcpyHtoD(self, to: int, of: int, size: int) -> tuple[int]:
        self.now += CALL
        ctypes.memmove(self.inside(to, size).ctypes.data, of, size)
        return (0,)

    def cuMemcpyDtoH(self, to: int, of: int, size: int) -> tuple[int]:
        ctypes.memmove(to, self.inside(of, size).ctypes.data, size)
        return (0,)

    def cuMemsetD8Async(self, at: int, value: int, size: int, stream: Stream) -> tuple[int]:
        self.inside(at, size)[:] = value
        return (0,)

    def cuMemPrefetchAsync(self, at: int, size: int, place: Any, flags: int, stream: Stream) -> tuple[int]:
        self.inside(at, size)
        assert (place.type, place.id) in ((1, 0), (2, 0))
        return self._copy(at, at, size, stream, "h2d" if place.type == 1 else "d2h") if not self.corrupt else (0,)

    def cuMemAdvise(self, at: int, size: int, advice: int, place: Any) -> tuple[int]:
        assert advice in (1, 3, 5) and place.type in (1, 2)
        return (0,)

    def cuStreamBeginCapture(self, stream: Stream, mode: str) -> tuple[int]:
        self.capturing = []
        return (0,)

    def cuStreamEndCapture(self, stream: Stream) -> tuple[int, list[Any]]:
        graph, self.capturing = self.capturing, None
        return 0, graph or []

    def cuGraphInstantiate(self, graph: list[Any], flags: int) -> tuple[int, list[Any]]:
        self.now += 50 * CALL
        return 0, graph

    def cuGraphLaunch(self, graph: list[Any], stream: Stream) -> tuple[int]:
        self.now += CALL
        for launch in graph:
            self.cuLaunchKernel(*launch)
        return (0,)

    def cuGraphExecDestroy(self, graph: Any) -> tuple[int]:
        return (0,)

    cuGraphDestroy = cuGraphExecDestroy

    def cuLaunchKernel(self, f: str, x: int, y: int, z: int, tx: int, ty: int, tz: int, shared: int,
                       stream: Stream, args: Any, extra: int) -> tuple[int]:  # fmt: skip
        if self.capturing is not None:
            self.capturing.append((f, x, y, z, tx, ty, tz, shared, stream, args, extra))
            return (0,)
        assert 0 < tx * ty * tz <= 1024 and min(x, y, z) > 0 and isinstance(stream, Stream)
        values, types = args or ((), ())
        assert types == declared(f), f"{f} is launched with {types}"
        self.now += CALL
        self.kernels[f] += 1
        if f == "spin":
            stream.time = max(stream.time, self.now)
            stream.held_by = self.inside(values[0], 4)
            return (0,)
        self.spend(stream, self._run(f, *values) / RATES["kernel"])
        return (0,)

    def _words(self, address: int, count: int, kind: Any = np.uint32) -> np.ndarray:
        return self.inside(address, count * np.dtype(kind).itemsize).view(kind)

    def _run(self, f: str, *v: Any) -> float:
        """Do what a kernel does; returns the bytes that it counts for."""
        if f == "fill":
            self._words(v[0], v[1])[:] = pattern(4 * v[1], v[2])
            return 4 * v[1]
        if f == "count_wrong":
            self._words(v[3], 1, np.uint64)[0] = (self._words(v[0], v[1]) != pattern(4 * v[1], v[2])).sum()
            return 4 * v[1]
        if f.startswith("stream_"):
            arrays = {"read": 1, "write": 1, "copy": 2, "triad": 3}[f[7:]]
            data = [self.inside(a, 16 * v[arrays]) for a in v[:arrays]]
            if arrays == 2:
                data[0][:] = data[1]
            return arrays * 16.0 * v[arrays] * v[arrays + 1]
        if f.startswith("chase"):
            at, links = v[0], 0
            base = next(b for b, d in self.blocks.items() if b <= at < b + len(d))
            words = self.blocks[base][: len(self.blocks[base]) // 8 * 8].view(np.uint64)
            while links < v[1]:
                at, links = int(words[(at - base) // 8]), links + 1
            self._words(v[2], 3, np.uint64)[:] = (at, 2 * STEP * v[1], STEP * v[1])
            return 0
        if f.startswith("touch_"):
            width = int(f.rsplit("_", 1)[1])
            data = self.inside(v[0], width * v[1])
            if "write" in f:
                value = np.frombuffer(np.uint32(v[2]).tobytes(), np.uint8)
                data.reshape(-1, width)[:, : min(4, width)] = value[: min(4, width)]
            return width * v[1]
        if f == "gemm_fp32":
            a, b, c = (self._words(p, v[3] ** 2, np.float32).reshape(v[3], v[3]) for p in v[:3])
            if v[3] <= 256:
                c[:] = a @ b
            return 2.0 * v[3] ** 3
        sizes = {"elementwise": 3 * 16, "fma_sweep": 16, "null_kernel": 0}[f]
        return float(sizes * v[{"elementwise": 2, "fma_sweep": 1}[f]]) if sizes else 0

    def nvrtcVersion(self) -> tuple[int, int, int]:
        return 0, 12, 9

    def nvrtcGetSupportedArchs(self) -> tuple[int, list[int]]:
        return 0, [80, 90]

    def nvrtcCreateProgram(self, source: bytes, name: bytes, count: int, texts: Any, names: Any) -> tuple[int, str]:
        assert isinstance(source, bytes) and (count, texts, names) == (0, [], [])
        return 0, "program"

    def nvrtcCompileProgram(self, program: str, count: int, options: list[bytes]) -> tuple[int]:
        assert options == [b"--gpu-architecture=sm_90"] and count == 1
        return (0,)

    def nvrtcGetCUBINSize(self, program: str) -> tuple[int, int]:
        return 0, 5

    def nvrtcGetCUBIN(self, program: str, buffer: bytes) -> tuple[int]:
        ctypes.memmove(buffer, b"cubin", 5)  # the bindings write into it as well
        return (0,)


class FakeNvml:
    """`Nvml(FakeNvml())`.  pids: other processes on the device."""

    class NVMLError(Exception):
        pass

    NVML_CLOCK_SM, NVML_CLOCK_MEM = 1, 2

    def __init__(self, pids: tuple[int, ...] = (), mig: int = 0, busy: int = 0) -> None:
        self.pids, self.mig, self.busy = pids, mig, busy

    def nvmlInit(self) -> None:
        pass

    def nvmlDeviceGetHandleByPciBusId(self, bus: bytes) -> bytes:
        assert re.fullmatch(rb"[0-9a-f]{4}:[0-9a-f]{2}:00\.0", bus)
        return bus

    def nvmlDeviceGetMigMode(self, handle: Any) -> list[int]:
        return [self.mig, self.mig]

    def nvmlDeviceGetComputeRunningProcesses(self, handle: Any) -> list[Any]:
        return [SimpleNamespace(pid=p) for p in self.pids]

    def nvmlDeviceGetUtilizationRates(self, handle: Any) -> Any:
        return SimpleNamespace(gpu=self.busy)

    def nvmlSystemGetDriverVersion(self) -> bytes:
        return b"580.1"

    def nvmlDeviceGetCurrPcieLinkGeneration(self, handle: Any) -> int:
        return 5

    def nvmlDeviceGetPowerUsage(self, handle: Any) -> int:
        raise self.NVMLError
