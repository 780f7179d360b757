"""Kernels, and copies within the device's memory, as programs."""

from __future__ import annotations

from gpusim.calibrate import meaning
from gpusim.calibrate.as_programs.row_program import BIG, LARGE, MANY, Cannot, RowProgram, started
from gpusim.calibrate.rows import Row
from gpusim.machine.generations import generation
from gpusim.machine.loads import WORD
from gpusim.machine.profile import Profile
from gpusim.machine.streaming import CHASE, COPY, IN_STEP, KERNEL, SHARED
from gpusim.trace.build import TraceBuilder

_PASSES = 1 << 32  # bytes that a kernel moves which goes over the same ones again and again
_FILLER = 1 << 30  # bytes where the row does not say
_LOADS = 1 << 20  # of one thread, each of which waits for the one before
_PASSED = 1 << 10  # passes of a looping kernel
_BLOCK = 1024  # threads of its blocks
_TYPES = {"fp32": ("float32", 4), "tf32": ("float32", 4), "fp16": ("float16", 2), "bf16": ("bfloat16", 2)}


def local(row: Row, profile: Profile) -> RowProgram:
    """One kernel, or one memcpy, behind nothing; over and over the same bytes where the test did so, by as many threads."""
    streams = meaning.local(row)
    assert streams is not None
    size = row.size_bytes or _FILLER
    builder = TraceBuilder(row.series_id)
    if streams.by_driver:  # the size is that of the source
        count = LARGE if size >= BIG else MANY
        started(builder)
        for _ in range(count):
            builder.op(COPY, (), (), read_bytes=size, written_bytes=size, stream=1)
        uses = ("memory.copy_engine",) if size >= BIG else ("memory.copy_engine", "launch.copy")
        return RowProgram(builder.finish(), count, uses, 1, moved=2 * size * streams.counted)
    parts = streams.reads + streams.writes
    # A row's size is that of all arrays together where a footprint was swept, else that of one array.
    array = size // parts if meaning.together(row) else size
    passes = max(1, _PASSES // (array * parts)) if meaning.repeated(row) else 1
    tensors = [builder.alloc(array) for _ in range(parts)]
    name = SHARED if meaning.shared(row) else KERNEL
    share = meaning.occupancy(row, profile.gpu.sm_count.value)
    threads = max(1, round(share * generation(profile).threads * profile.gpu.sm_count.value))
    builder.op(
        name, tensors[: streams.reads], tensors[streams.reads :], stream=1,
        read_bytes=array * streams.reads * passes, written_bytes=array * streams.writes * passes,
        shape=f"-> | threads={threads} width={WORD * parts}" if share < 1 else None,
    )  # fmt: skip
    rates = ("memory.read", "memory.shared_curve") if meaning.shared(row) else _rates(streams, meaning.repeated(row))
    if share < 1:
        rates += ("memory.turnaround",)
    return RowProgram(builder.finish(), 1, rates, 1, moved=array * parts * passes)


def _rates(streams: meaning.Local, swept: bool) -> tuple[str, ...]:
    if streams.reads == 0:
        return ("memory.write",)
    if streams.writes == 0:
        return ("memory.read", "memory.read_curve" if swept else "memory.read")
    if streams.reads == streams.writes:
        return ("memory.copy", "memory.copy_curve" if swept else "memory.copy")
    return ("memory.read", "memory.copy")


def queued_kernels(row: Row) -> RowProgram:
    """Kernels that scale one array into another, back and forth, as fast as they can be launched."""
    half = (row.size_bytes or 0) // 2
    builder = TraceBuilder(row.series_id)
    here, there = builder.alloc(half), builder.alloc(half)
    for _ in range(MANY // 2):
        builder.op(KERNEL, (here,), (there,), read_bytes=half, written_bytes=half)
        builder.op(KERNEL, (there,), (here,), read_bytes=half, written_bytes=half)
    rates = ("memory.copy", "memory.copy_curve")
    return RowProgram(builder.finish(), MANY, (_start(row), *rates), 0, moved=2 * half, graph=meaning.launch(row) == "graph")


def looping(row: Row, profile: Profile) -> RowProgram:
    """One kernel that scales an array into another again and again, and whose thread blocks wait for each other in between."""
    half = (row.size_bytes or 0) // 2
    builder = TraceBuilder(row.series_id)
    here, there = builder.alloc(half), builder.alloc(half)
    started(builder)
    builder.op(
        KERNEL, (here,), (there,), read_bytes=half * _PASSED, written_bytes=half * _PASSED, stream=1,
        shape=f"-> | passes={_PASSED} blocks={blocks(row, profile)}",
    )  # fmt: skip
    return RowProgram(builder.finish(), _PASSED, ("launch.barrier", "memory.copy", "memory.copy_curve"), 1, moved=2 * half)


def blocks(row: Row, profile: Profile) -> int:
    """Thread blocks of a looping kernel: one for each of its pieces, and no more than the device holds."""
    most = generation(profile).threads // _BLOCK * profile.gpu.sm_count.value
    return max(1, min((row.size_bytes or 0) // (2 * WORD * _BLOCK), most))


def in_step(row: Row, profile: Profile) -> RowProgram:
    """One thread block on each multiprocessor; all read the same bytes over and over."""
    size, blocks = row.size_bytes or 0, profile.gpu.sm_count.value
    passes = max(1, _PASSES // size)
    builder = TraceBuilder(row.series_id)
    started(builder)
    builder.op(IN_STEP, (builder.alloc(size),), (), read_bytes=size * blocks * passes, stream=1)
    return RowProgram(builder.finish(), 1, ("memory.in_step_curve",), 1, moved=size * blocks * passes)


def chase(row: Row, profile: Profile) -> RowProgram:
    """One thread follows a random circle of addresses through so many bytes, or through those of one level."""
    at = meaning.chased(row)
    l2 = profile.gpu.l2.value
    level = {"l1_latency_cycles": 1 << 14, "l2_latency_cycles": l2 // 4, "hbm_latency_cycles": 16 * l2}
    size = level.get(row.metric) or row.size_bytes or 1 << 21
    builder = TraceBuilder(row.series_id)
    started(builder)
    builder.op(
        CHASE, (builder.alloc(size),), (), read_bytes=_LOADS * WORD, stream=1, shape=f"-> | loads={_LOADS} at={at}"
    )
    uses = {"device": "memory.latency_curve", "host": "link.load", "peer": "peer.load"}[at]
    return RowProgram(builder.finish(), _LOADS, (uses,), 1)


def _start(row: Row) -> str:
    """The number that a short kernel costs."""
    return "launch.gap" if meaning.launch(row) == "graph" else "launch.empty"


def tiny(row: Row) -> RowProgram:
    """Copies of a few bytes within the device, or kernels that do nothing."""
    size = (row.size_bytes or 16) if row.metric == "local_copy_latency_us" else 0
    builder = TraceBuilder(row.series_id)
    started(builder)
    for _ in range(MANY):
        builder.op(COPY if size else KERNEL, (), (), read_bytes=size, written_bytes=size, stream=1)
    uses = "launch.copy" if size else _start(row)
    return RowProgram(builder.finish(), MANY, (uses,), 1, graph=meaning.launch(row) == "graph")


def computing(row: Row) -> RowProgram:
    """A kernel that reads with many loads under way, with so many flops for each byte."""
    flops = float(row.params["flop_per_byte"]) * _FILLER
    builder = TraceBuilder(row.series_id)
    builder.op(SHARED, (builder.alloc(_FILLER),), (), read_bytes=_FILLER, flops=flops, stream=1, dtype="float32")
    return RowProgram(builder.finish(), 1, ("memory.read", "gpu.fma"), 1, flops=flops)


def elementwise(row: Row) -> RowProgram:
    """y += relu(x + bias): two arrays read, one written."""
    size = row.size_bytes or 0
    builder = TraceBuilder(row.series_id)
    started(builder)
    for _ in range(LARGE):
        builder.op("add", (), (), read_bytes=2 * size, written_bytes=size, stream=1, dtype="float32")
    return RowProgram(builder.finish(), LARGE, ("memory.copy", "launch.empty"), 1, moved=3 * size)


def product(row: Row) -> RowProgram | Cannot:
    """Square matrix products by a library, one after another."""
    dtype, n = row.params.get("dtype", ""), int(row.params.get("n", 0))
    if row.params.get("by") == "own" or dtype not in _TYPES or not n:
        return Cannot("the model knows products as libraries make them, in fp32, tf32, fp16 and bf16")
    name, width = _TYPES[dtype]
    flops, matrix = 2.0 * n**3, n * n * width
    builder = TraceBuilder(row.series_id)
    builder.meta["tf32"] = dtype == "tf32"
    started(builder)
    for _ in range(LARGE):
        builder.op(
            "mm", (), (), read_bytes=2 * matrix, written_bytes=matrix, flops=flops, stream=1, dtype=name,
            shape=f"{n}x{n} {n}x{n} -> {n}x{n}",
        )  # fmt: skip
    return RowProgram(builder.finish(), LARGE, (f"gpu.achieved.{dtype}", "memory.copy"), 1, flops=flops)
