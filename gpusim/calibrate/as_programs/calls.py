"""Calls for memory as programs: what surrounds the calls is a program of its own, whose time is taken off."""

from __future__ import annotations

from gpusim.calibrate.as_programs.row_program import LARGE, MANY, RowProgram
from gpusim.calibrate.rows import Row
from gpusim.trace.build import TraceBuilder
from gpusim.trace.trace import Trace


def calls(row: Row) -> RowProgram:
    """cudaMalloc, or cudaFree after it, and a kernel of no length at the end, which starts when the host is done with them."""
    name = row.metric.removeprefix("cuda").removesuffix("_us")

    def calls(count: int, freeing: bool) -> Trace:
        builder = TraceBuilder(row.series_id)
        tensors = [builder.alloc(row.size_bytes or 1 << 20) for _ in range(count)]
        if freeing:
            for tensor in tensors:
                builder.free(tensor)
        builder.op("null", (), (), duration=0)
        return builder.finish()

    free = name == "free"
    uses = (f"allocation.{name}", f"allocation.{name}_per_gib")
    return RowProgram(calls(LARGE, free), LARGE, uses, without=calls(LARGE if free else 0, False))


def pool(row: Row) -> RowProgram:
    """Requests that the stream-ordered pool serves from what it holds."""
    size = row.size_bytes or 1 << 20

    def requests(count: int) -> Trace:
        builder = TraceBuilder(row.series_id)
        builder.free(builder.alloc(size))
        for _ in range(count):
            builder.free(builder.alloc(size))
        builder.op("null", (), (), duration=0)
        return builder.finish()

    return RowProgram(requests(MANY), MANY, ("allocation.cached_alloc",), without=requests(0), place="cuda_async")
