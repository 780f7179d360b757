"""What a Kineto trace says of one GPU: kernels, their launches, host operators, memory instants, steps.

Events are Chrome's: `ph` X with `ts` and `dur` in us, `cat` what it is, `args` the rest.  Releases before 2022 name the
categories Operator, Runtime, Kernel, Memcpy and Memset, and put streams and threads as text.
"""

from __future__ import annotations

import math
import operator
import re
from collections import Counter
from typing import Any, BinaryIO, NamedTuple

from gpusim.base.errors import TraceError, shown
from gpusim.trace.check import MAX_BYTES
from gpusim.trace.importers.collective_calls import NCCL_KERNEL, CollectiveCall, of_arguments, of_tensors
from gpusim.trace.importers.collective_groups import least_of_groups
from gpusim.trace.importers.json_stream import JsonStream
from gpusim.trace.importers.profiled_shapes import profiled_shape
from gpusim.trace.launches import launch_text
from gpusim.trace.recorded_times import ON
from gpusim.trace.submission import GRAPH, KEY
from gpusim.trace.trace import COPY_IN, COPY_OUT, KERNEL

_DEVICE_WORK = {"kernel": "kernel", "gpu_memcpy": "copy", "gpu_memset": "set", "memcpy": "copy", "memset": "set"}
_LAUNCHES = ("cuda_runtime", "cuda_driver", "runtime", "hip_runtime", "hip_driver", "xpu_runtime")
_WAITS = re.compile(r"^(cuda|hip)(DeviceSynchronize|StreamSynchronize|EventSynchronize)$")
_STREAM_WAIT = re.compile(r"^(cuda|cu|hip)StreamWaitEvent")
_GRAPH = re.compile(r"^(cudaGraphLaunch|cuGraphLaunch|hipGraphLaunch)")
_STEP = re.compile(r"^ProfilerStep#(\d+)$")
_CPU = 0  # c10::DeviceType
_NOT_RECORDED = "profile with activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA] and profile_memory=True"

# C++ and ATen names of types -> (bytes, name).
TYPES = {
    "float": (4, "float32"), "double": (8, "float64"), "c10::Half": (2, "float16"), "c10::BFloat16": (2, "bfloat16"),
    "long int": (8, "int64"), "long": (8, "int64"), "int": (4, "int32"), "short": (2, "int16"), "short int": (2, "int16"),
    "signed char": (1, "int8"), "unsigned char": (1, "uint8"), "bool": (1, "bool"), "c10::Float8_e4m3fn": (1, "float8_e4m3fn"),
    "c10::Float8_e5m2": (1, "float8_e5m2"), "c10::complex<float>": (8, "complex64"), "c10::complex<double>": (16, "complex128"),
}  # fmt: skip


class KernelActivity(NamedTuple):
    """What the device did at once; times in ns."""

    launched: int  # when the host asked for it
    began: int  # on the device
    thread: Any  # that asked
    name: str
    duration: int
    stream: int
    activity: int
    moved: int  # bytes of a copy or memset
    reads: bool  # whether it is a copy
    launch: str | None  # of a kernel, as gpusim.trace.launches has it
    call: CollectiveCall | None = None  # of a kernel of NCCL, where its own arguments say it
    nccl: bool = False  # whether it is one


class HostOperator(NamedTuple):
    """An operator as the host ran it: a range of its thread; operators nest."""

    start: int
    end: int
    thread: Any
    name: str
    inputs: tuple[int, ...]  # bytes of each tensor argument, if shapes were recorded
    dtype: str
    record: int  # the id by which an execution trace knows it, -1 where there is none
    shape: str | None  # of its inputs, as gpusim.trace.shapes has it
    call: CollectiveCall | None = None  # what its kernels of NCCL do


class MemoryInstant(NamedTuple):
    """A [memory] instant: bytes > 0 taken from PyTorch's allocator, < 0 given back; -1 where a number is missing."""

    time: int
    thread: Any
    bytes: int
    addr: int
    allocated: int
    reserved: int


class Range(NamedTuple):
    start: int
    end: int
    thread: Any
    name: str


class _Wrong(Exception):
    """What is wrong with a field, as the beginning of a sentence."""


class DeviceEvents:
    """The events of one device, each list in the order of time."""

    def __init__(self, file: BinaryIO, path: str, device: int | None) -> None:
        self._kernels: list[tuple[int, Any, int, int, str, str, int, int, str | None]] = []
        self._launches: dict[Any, list[tuple[int, Any, int]]] = {}
        self._graphs: set[Any] = set()  # correlations of launches of CUDA graphs
        self._memory: list[tuple[int, MemoryInstant]] = []
        self._waits: list[tuple[int, Any]] = []
        self._calls: dict[int, CollectiveCall | None] = {}  # kernel of NCCL -> what its arguments say
        self.stream_waits: list[tuple[int, Any]] = []  # (time, thread) at which the host made a stream wait for another
        self._names: dict[str, str] = {}
        self.operators: list[HostOperator] = []
        self.steps: list[Range] = []
        self.annotations: list[Range] = []
        self.header: dict[str, Any] = {}
        stream = JsonStream(file, path, "traceEvents")
        for key, value in stream:
            if key != "traceEvents":
                self.header[key] = value
                continue
            try:
                self._add(value)
            except _Wrong as error:
                raise TraceError(f"{error}, in the event that ends here", stream.where, "is the file damaged?") from None
            except (AttributeError, KeyError, TypeError, ValueError, OverflowError):
                raise TraceError("the event that ends here is not one that a profiler writes", stream.where) from None
        self.device = self._chosen(path, device)
        self.memory = sorted((m for d, m in self._memory if d == self.device), key=lambda m: m.time)
        self._own = least_of_groups([(kernel[0], kernel[2], kernel[4], kernel[6]) for kernel in self._kernels])
        self.kernels = self._launched()
        threads = {kernel.thread for kernel in self.kernels}
        self.waits = sorted(time for time, thread in self._waits if thread in threads)
        self.stream_waits.sort(key=lambda wait: wait[0])
        self.operators.sort(key=lambda o: (o.start, -o.end))
        self.steps.sort()
        self.annotations.sort()

    def recorded_on(self) -> dict[str, str]:
        """What a trace's meta says of the GPU: its product name, where the profile has it."""
        known = self.header.get("deviceProperties")
        for each in known if isinstance(known, list) else ():
            if isinstance(each, dict) and each.get("id") == self.device and isinstance(each.get("name"), str):
                return {ON: each["name"]}
        return {}

    def submission(self) -> dict[str, str]:
        """What a trace's meta says of it: that most of the device's work was launched by CUDA graphs, else nothing."""
        own = [correlation for _, correlation, device, *_ in self._kernels if device == self.device]
        graphs = sum(correlation in self._graphs for correlation in own)
        return {KEY: GRAPH} if 2 * graphs > len(own) else {}

    def waited(self) -> dict[str, str]:
        """What a trace's meta says in its list of what was filled: collectives that waited here for other devices."""
        of_device = [i for i, kernel in enumerate(self._kernels) if kernel[2] == self.device]
        longer = sum(self._kernels[i][6] > self._own.get(i, math.inf) for i in of_device)
        said = f"{longer} take the least time of their group, whose other devices they waited for"
        return {"collectives": said} if longer else {}

    def _add(self, event: dict[str, Any]) -> None:
        phase = event.get("ph")
        if phase == "X":
            category = str(event.get("cat", "")).lower()
            if category in _DEVICE_WORK:
                self._device_work(event, _DEVICE_WORK[category])
            elif category in _LAUNCHES:
                args = event["args"]
                time, thread = _ns(event["ts"]), _thread(event)
                if "correlation" in args:
                    self._launches.setdefault(_plain(args, "correlation"), []).append((time, thread, int(args.get("size", 0))))
                    if _GRAPH.match(event["name"]):
                        self._graphs.add(args["correlation"])
                if _WAITS.match(event["name"]):
                    self._waits.append((time, thread))
                elif _STREAM_WAIT.match(event["name"]):
                    self.stream_waits.append((time, thread))
            elif category in ("cpu_op", "operator", "user_annotation"):
                self._range(event, category)
        elif phase == "i" and event.get("name") == "[memory]":
            args = event["args"]
            if args["Device Type"] == _CPU:
                return
            self._memory.append((
                _whole(args, "Device Id"),
                MemoryInstant(
                    _ns(event["ts"]), _thread(event), int(args["Bytes"]), int(args.get("Addr", -1)),
                    int(args.get("Total Allocated", -1)), int(args.get("Total Reserved", -1)),
                ),
            ))  # fmt: skip

    def _device_work(self, event: dict[str, Any], what: str) -> None:
        args = event["args"]
        device = _whole(args, "device") if "device" in args else _whole(event, "pid")
        stream = args.get("stream", 0)
        if what == "kernel" and NCCL_KERNEL.match(str(event["name"])):
            self._calls[len(self._kernels)] = of_arguments(args)
        self._kernels.append((
            _ns(event["ts"]), _plain(args, "correlation"), device, int(stream), self._name(event["name"]), what,
            _ns(event["dur"]), int(args.get("bytes", 0)), _launch(args) if what == "kernel" else None,
        ))  # fmt: skip

    def _range(self, event: dict[str, Any], category: str) -> None:
        name = self._name(event["name"])
        start, thread = _ns(event["ts"]), _thread(event)
        found = Range(start, start + _ns(event.get("dur", 0)), thread, name)
        if _STEP.match(name):
            self.steps.append(found)
        elif category == "user_annotation" and not name.startswith("nccl:"):
            self.annotations.append(found)
        else:
            args = event.get("args", {})
            inputs, dtype = _inputs(args.get("Input Dims", ()), args.get("Input type", ()))
            record = args.get("Record function id", args.get("External id", args.get("external id", -1)))
            call = of_arguments(args) or (of_tensors(name, inputs) if name.startswith("nccl:") else None)
            self.operators.append(HostOperator(*found, inputs, dtype, int(record), profiled_shape(name, args), call))

    def _name(self, name: str) -> str:
        """One copy of each name."""
        if not isinstance(name, str):
            raise _Wrong(f"'name' is {shown(name)}, not text,")
        return self._names.setdefault(name, name)

    def _chosen(self, path: str, wanted: int | None) -> int:
        present = Counter(device for device, _ in self._memory) + Counter(kernel[2] for kernel in self._kernels)
        listed = ", ".join(str(device) for device in sorted(present, key=str)[:16])
        if not present:
            lacks = "neither GPU kernels nor [memory] events of a GPU"
            raise TraceError(f"the profile holds {lacks}", path, _NOT_RECORDED)
        if wanted is not None:
            if wanted not in present:
                raise TraceError(f"the profile holds nothing of device {wanted}", path, f"it holds: {listed}")
            return wanted
        if len(present) > 1:
            fault = f"the profile holds {len(present)} devices: {listed}"
            raise TraceError(fault, path, "choose one, as device=0 or --device 0")
        return next(iter(present))

    def _launched(self) -> list[KernelActivity]:
        """The device's work in the order in which the host asked for it; what lacks its launch, when it began."""
        for launches in self._launches.values():
            launches.sort(key=lambda launch: launch[0])
        found = []
        for i, (time, correlation, device, stream, name, what, duration, moved, launch) in enumerate(self._kernels):
            if device != self.device:
                continue
            # Files joined from several processes repeat correlations: the latest launch before the kernel is its own.
            launches = [launch for launch in self._launches.get(correlation, ()) if launch[0] <= time]
            launched, thread, size = launches[-1] if launches else (time, None, 0)
            activity = KERNEL
            if what == "copy":
                activity = COPY_IN if "HtoD" in name else COPY_OUT if "DtoH" in name else KERNEL
                moved = moved or size
            own = self._own.get(i, duration)
            found.append(KernelActivity(
                launched, time, thread, name, own, stream, activity, moved, what == "copy", launch, self._calls.get(i),
                i in self._calls,
            ))  # fmt: skip
        found.sort(key=lambda kernel: kernel.launched)
        return found


def _ns(us: float) -> int:
    return int(us * 1000) if type(us) is int else round(float(us) * 1000)


def _whole(fields: dict[str, Any], name: str) -> int:
    """The field as a whole number, perhaps written as text."""
    value = fields.get(name)
    try:
        return int(value) if isinstance(value, str) else operator.index(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise _Wrong(f"'{name}' is {shown(value)}, not a whole number,") from None


def _plain(fields: dict[str, Any], name: str) -> Any:
    """The field as a number or text, None where it is missing."""
    value = fields.get(name)
    if isinstance(value, list | dict):
        raise _Wrong(f"'{name}' is {shown(value)}, neither a number nor text,")
    return value


def _launch(args: dict[str, Any]) -> str | None:
    """The launch configuration of a kernel, None where it was not recorded."""
    grid, block = args.get("grid", ()), args.get("block", ())
    if not (grid and block and all([*grid, *block])):
        return None
    try:
        return launch_text(grid, block, int(args.get("registers per thread", 0)), int(args.get("shared memory", 0)))
    except TraceError:
        raise _Wrong(f"'grid' {shown(grid)} or 'block' {shown(block)} is none of a kernel,") from None


def _thread(event: dict[str, Any]) -> tuple[Any, str]:
    return _plain(event, "pid"), str(event.get("tid"))


def _inputs(dims: Any, types: Any) -> tuple[tuple[int, ...], str]:
    """Bytes of each tensor argument, and the type of the first that is a floating-point tensor."""
    sizes, dtype = [], ""
    for shape, kind in zip(dims, types, strict=False):
        if kind not in TYPES or (shape and not all(type(n) is int for n in shape)):
            continue
        size, name = TYPES[kind]
        for n in shape:
            size *= n
            if not 0 <= size <= MAX_BYTES:
                raise _Wrong(f"the shape {shown(shape)} of 'Input Dims' is that of no tensor")
        sizes.append(size)
        if not dtype and "float" in name:
            dtype = name
    return tuple(sizes), dtype
