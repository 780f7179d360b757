"""A measurement row as a program for the simulator, or the reason why the engine cannot run it."""

from __future__ import annotations

from dataclasses import dataclass

from gpusim.calibrate import meaning
from gpusim.calibrate.meaning import PEER, local, sent
from gpusim.calibrate.rows import Row
from gpusim.hardware.profile import Profile
from gpusim.hardware.streaming import COPY, KERNEL
from gpusim.trace.build import TraceBuilder
from gpusim.trace.trace import COLLECTIVE, COPY_IN, COPY_OUT, RECORD, SYNC, WAIT, Trace

_MANY = 400  # kernels in a row, small copies in a row
_LARGE = 16  # large copies in a row
_BIG = 1 << 22  # bytes from which a copy is large
_SPIN = 5_000_000  # ns of the kernel that holds back what the host submits meanwhile
_PASSES = 1 << 32  # bytes that a kernel moves which goes over the same ones again and again
_FILLER = 1 << 30  # bytes where the row does not say


@dataclass(frozen=True)
class Program:
    """What to run, and what its time means."""

    trace: Trace
    repeats: int
    """How many copies, kernels or calls the time is of."""
    uses: tuple[str, ...]
    """The numbers of the profile that decide it."""
    stream: int | None = None
    """Time from the first start to the last end on this stream; None: the whole program."""
    without: Trace | None = None
    """A program whose time is taken off: what surrounds the calls."""
    place: str = "device"
    moved: float = 0.0
    """Bytes of one repeat that the row counts; 0 where it gives a time."""
    flops: float = 0.0


@dataclass(frozen=True)
class Cannot:
    """Why a row is not simulated."""

    why: str


def program(row: Row, profile: Profile) -> Program | Cannot:
    """The row's program."""
    metric, size = row.metric, row.size_bytes
    why = _lacking(row)
    if why:
        return Cannot(why)
    if metric == "queued_kernel_scale_bw" and size:
        return _queued_kernels(row)
    if metric == "fp32_fma_gflops":
        return _computing(row)
    if local(row):
        return _local(row)
    if metric in ("h2d_pinned_bw", "d2h_pinned_bw", "h2d_pinned_time_us", "d2h_pinned_time_us"):
        return _several_streams(row) if meaning.streams(row) > 1 else _copies(row)
    if metric in ("h2d_pinned_bidir_bw", "d2h_pinned_bidir_bw"):
        return _both_ways(row)
    if metric in PEER or metric == "p2p_latency_us":
        return _peer(row) if profile.peer else Cannot("the profile has no links between GPUs")
    if sent(row) and size:
        return _collective(row, profile)
    if metric in ("local_copy_latency_us", "null_kernel_us"):
        return _tiny(row)
    if metric == "elementwise_bw" and size:
        return _elementwise(row)
    if metric == "gemm_gflops":
        return _product(row)
    if metric in ("cudamalloc_us", "cudafree_us"):
        return _calls(row)
    if metric == "cudamallocasync_us":
        return _pool(row)
    return Cannot("the engine has nothing of this kind")


# Beginnings of metrics -> what the engine lacks; the first that fits.
_LACKS = (
    (("load_latency", "l1_latency", "l2_latency", "hbm_latency", "shared_latency", "host_access", "peer_access"),
     "no single loads: a kernel is its bytes and flops"),
    (("l1_or_l2",), "no L1 cache and no multiprocessors"),
    (("h2d_pageable", "d2h_pageable"), "program copies are of pinned memory; staging by the CPU is not modelled"),
    (("h2d_sm", "d2h_sm", "zero_copy"), "kernels do not read or write host memory"),
    (("all_to_", "host_to_all", "one_to_all"), "one GPU is simulated: what several do to the host at once is not"),
    (("p2p_nvlink_bidir", "p2p_pcie_bidir", "p2p_mixed_bidir", "p2p_staged_bidir"),
     "one GPU is simulated: what comes from its peer is not"),
    (("p2p_staged",), "a copy to a peer by way of the host takes two links in turn"),
    (("p2p_pcie", "p2p_mixed"), "peers over PCIe share switches that the profile does not have"),
    (("um_", "managed_"), "managed memory is not in this comparison"),
    (("cumem", "vmm_"), "calls for virtual memory are not among the host's costs"),
    (("cudahostalloc", "cudafreehost"), "host memory is not allocated in a run"),
    (("hbm_copy_2stream",), "kernels of several streams do not share the device's memory"),
    (("nccl_allreduce_busbw",), "the number of GPUs that share a collective's rate is not in the profile"),
    (("gdr_", "cpu_bar1", "rdma", "cxl", "host_", "mpi_"), "the host's own loads and the network are not simulated"),
    (("gpucopy:",), "the GPU is not named"),
)  # fmt: skip


_MODES = {
    "graph": "kernels are launched one by one: no CUDA graphs",
    "coop_gridsync": "no kernels that wait for all of their threads",
    "persistent_atomic": "no kernels that go on for ever",
}


def _lacking(row: Row) -> str:
    if row.metric in ("queued_kernel_scale_bw", "null_kernel_us") and row.params.get("mode", "stream") != "stream":
        return _MODES.get(row.params["mode"], "the engine has no such launches")
    if not meaning.full(row):
        return "no occupancy: a kernel has the device to itself"
    if row.metric.endswith("_bw") and not row.size_bytes and "pinned" in row.metric:
        return "the row does not say its size"
    return next((why for beginnings, why in _LACKS if row.metric.startswith(beginnings)), "")


def _started(builder: TraceBuilder) -> None:
    """Hold streams 1 and 2 back until all is submitted."""
    builder.op("spin", (), (), duration=_SPIN)
    builder.event(RECORD, 0, stream=0)
    for stream in (1, 2):
        builder.event(WAIT, 0, stream=stream)


def _copies(row: Row) -> Program:
    """Copies in a row: behind a kernel, or each awaited by the host."""
    size, inward = row.size_bytes or 0, row.metric.startswith("h2d")
    count = _LARGE if size >= _BIG else _MANY
    builder = TraceBuilder(row.series_id)
    awaited = meaning.synchronised(row)
    if not awaited:
        _started(builder)
    for _ in range(count):
        builder.op("copy", (), (), read_bytes=size, stream=1, activity=COPY_IN if inward else COPY_OUT)
        if awaited:
            builder.event(SYNC)
    uses: tuple[str, ...] = (f"link.{row.metric[:3]}",)
    if size < _BIG:
        uses += ("link.latency_synchronised",) if awaited else ("link.latency_queued", "link.size_curve")
    return Program(builder.finish(), count, uses, None if awaited else 1, moved=0.0 if row.unit == "us" else size)


def _several_streams(row: Row) -> Program:
    """One copy on each of several streams, all released together."""
    size, inward = row.size_bytes or 0, row.metric.startswith("h2d")
    builder = TraceBuilder(row.series_id)
    builder.op("spin", (), (), duration=_SPIN)
    builder.event(RECORD, 0, stream=0)
    count = meaning.streams(row)
    for stream in range(1, count + 1):
        builder.event(WAIT, 0, stream=stream)
        builder.op("copy", (), (), read_bytes=size, stream=stream, activity=COPY_IN if inward else COPY_OUT)
    return Program(builder.finish(), 1, (f"link.{row.metric[:3]}",), 1, moved=size * count)


def _both_ways(row: Row) -> Program:
    """Copies of the direction that is measured, while the other one is busy for longer."""
    size, inward = row.size_bytes or 0, row.metric.startswith("h2d")
    builder = TraceBuilder(row.series_id)
    _started(builder)
    for _ in range(_LARGE):
        builder.op("copy", (), (), read_bytes=size, stream=1, activity=COPY_IN if inward else COPY_OUT)
        for _ in range(2):
            builder.op("copy", (), (), read_bytes=size, stream=2, activity=COPY_OUT if inward else COPY_IN)
    return Program(builder.finish(), _LARGE, ("link.both",), 1, moved=size)


def _local(row: Row) -> Program:
    """One kernel, or one memcpy, behind nothing; over and over the same bytes where the test did so."""
    streams = local(row)
    assert streams is not None
    size = row.size_bytes or _FILLER
    builder = TraceBuilder(row.series_id)
    if streams.by_driver:  # the size is that of the source
        count = _LARGE if size >= _BIG else _MANY
        _started(builder)
        for _ in range(count):
            builder.op(COPY, (), (), read_bytes=size, written_bytes=size, stream=1)
        uses = ("memory.copy_engine",) if size >= _BIG else ("memory.copy_engine", "launch.gap")
        return Program(builder.finish(), count, uses, 1, moved=2 * size * streams.counted)
    parts = streams.reads + streams.writes
    # A row's size is that of all arrays together where a footprint was swept, else that of one array.
    array = size // parts if meaning.together(row) else size
    passes = max(1, _PASSES // (array * parts)) if meaning.repeated(row) else 1
    tensors = [builder.alloc(array) for _ in range(parts)]
    builder.op(
        KERNEL, tensors[: streams.reads], tensors[streams.reads :], stream=1,
        read_bytes=array * streams.reads * passes, written_bytes=array * streams.writes * passes,
    )  # fmt: skip
    return Program(builder.finish(), 1, _rates(streams, meaning.repeated(row)), 1, moved=array * parts * passes)


def _rates(streams: meaning.Local, swept: bool) -> tuple[str, ...]:
    if streams.reads == 0:
        return ("memory.write",)
    if streams.writes == 0:
        return ("memory.read", "memory.read_curve" if swept else "memory.read")
    if streams.reads == streams.writes:
        return ("memory.copy", "memory.copy_curve" if swept else "memory.copy")
    return ("memory.read", "memory.copy")


def _computing(row: Row) -> Program:
    """A kernel that reads, with so many flops for each byte."""
    flops = float(row.params["flop_per_byte"]) * _FILLER
    builder = TraceBuilder(row.series_id)
    builder.op(KERNEL, (builder.alloc(_FILLER),), (), read_bytes=_FILLER, flops=flops, stream=1, dtype="float32")
    return Program(builder.finish(), 1, ("memory.read", "gpu.peak.fp32"), 1, flops=flops)


def _elementwise(row: Row) -> Program:
    """y += relu(x + bias): two arrays read, one written."""
    size = row.size_bytes or 0
    builder = TraceBuilder(row.series_id)
    _started(builder)
    for _ in range(_LARGE):
        builder.op("add", (), (), read_bytes=2 * size, written_bytes=size, stream=1, dtype="float32")
    return Program(builder.finish(), _LARGE, ("memory.copy", "launch.gap"), 1, moved=3 * size)


_TYPES = {"fp32": ("float32", 4), "tf32": ("float32", 4), "fp16": ("float16", 2), "bf16": ("bfloat16", 2)}


def _product(row: Row) -> Program | Cannot:
    """Square matrix products by a library, one after another."""
    dtype, n = row.params.get("dtype", ""), int(row.params.get("n", 0))
    if row.params.get("by") == "own" or dtype not in _TYPES or not n:
        return Cannot("the roofline knows products as libraries make them, in fp32, tf32, fp16 and bf16")
    name, width = _TYPES[dtype]
    flops, matrix = 2.0 * n**3, n * n * width
    builder = TraceBuilder(row.series_id)
    builder.meta["tf32"] = dtype == "tf32"
    _started(builder)
    for _ in range(_LARGE):
        builder.op("mm", (), (), read_bytes=2 * matrix, written_bytes=matrix, flops=flops, stream=1, dtype=name)
    return Program(builder.finish(), _LARGE, (f"gpu.peak.{dtype}", "memory.copy"), 1, flops=flops)


def _queued_kernels(row: Row) -> Program:
    """Kernels that scale one array into another, back and forth, as fast as the host can launch them."""
    half = (row.size_bytes or 0) // 2
    builder = TraceBuilder(row.series_id)
    here, there = builder.alloc(half), builder.alloc(half)
    for _ in range(_MANY // 2):
        builder.op(KERNEL, (here,), (there,), read_bytes=half, written_bytes=half)
        builder.op(KERNEL, (there,), (here,), read_bytes=half, written_bytes=half)
    return Program(builder.finish(), _MANY, ("launch.gap", "memory.copy", "memory.copy_curve"), 0, moved=2 * half)


def _tiny(row: Row) -> Program:
    """Copies of a few bytes within the device, or kernels that do nothing."""
    size = (row.size_bytes or 16) if row.metric == "local_copy_latency_us" else 0
    builder = TraceBuilder(row.series_id)
    _started(builder)
    for _ in range(_MANY):
        builder.op(COPY if size else KERNEL, (), (), read_bytes=size, written_bytes=size, stream=1)
    return Program(builder.finish(), _MANY, ("launch.gap",), 1)


def _peer(row: Row) -> Program:
    """Copies to another GPU of the node."""
    size = row.size_bytes or _FILLER
    rate = row.metric in PEER
    count = _LARGE if rate else _MANY
    builder = TraceBuilder(row.series_id)
    _started(builder)
    for _ in range(count):
        builder.op("to a peer", (), (), read_bytes=size, stream=1, activity=COLLECTIVE)
    uses = ("peer.rate",) if rate else ("peer.latency", "launch.gap")
    return Program(builder.finish(), count, uses, 1, moved=size if rate else 0)


def _collective(row: Row, profile: Profile) -> Program:
    size = round((sent(row) or 0) * (row.size_bytes or 0))
    builder = TraceBuilder(row.series_id)
    _started(builder)
    for _ in range(_LARGE):
        builder.op(row.metric.split("_")[1], (), (), read_bytes=size, stream=1, activity=COLLECTIVE)
    uses = ("peer.rate", "peer.latency") if profile.peer else ("link.both", "link.latency_queued")
    return Program(builder.finish(), _LARGE, uses, 1)


def _calls(row: Row) -> Program:
    """cudaMalloc, or cudaFree after it, beside kernels of no length; what surrounds the calls is taken off."""
    name = row.metric.removeprefix("cuda").removesuffix("_us")

    def calls(allocating: bool, freeing: bool) -> Trace:
        builder = TraceBuilder(row.series_id)
        for _ in range(_LARGE):
            tensors = [builder.alloc(row.size_bytes or 1 << 20)] if allocating else []
            builder.op("null", (), (), duration=0)
            builder.event(SYNC)
            if freeing:
                builder.free(tensors[0])
        builder.op("null", (), (), duration=0)
        return builder.finish()

    free = name == "free"
    uses = (f"allocation.{name}", f"allocation.{name}_per_gib")
    return Program(calls(True, free), _LARGE, uses, without=calls(free, False))


def _pool(row: Row) -> Program:
    """Requests that the stream-ordered pool serves from what it holds."""
    size = row.size_bytes or 1 << 20

    def requests(count: int) -> Trace:
        builder = TraceBuilder(row.series_id)
        builder.free(builder.alloc(size))
        for _ in range(count):
            builder.free(builder.alloc(size))
        builder.op("null", (), (), duration=0)
        return builder.finish()

    return Program(requests(_MANY), _MANY, ("allocation.cached_alloc",), without=requests(0), place="cuda_async")
