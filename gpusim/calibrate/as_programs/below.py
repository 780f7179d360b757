"""Host memory as a tier of the engine: tensors that are swapped to pageable memory, kernels that work on host memory in place,
and several GPUs that use it at once."""

from __future__ import annotations

from typing import Any

from gpusim.calibrate import meaning
from gpusim.calibrate.as_programs.row_program import LARGE, RowProgram, started
from gpusim.calibrate.rows import Row
from gpusim.engine.run.ways import FULL
from gpusim.machine.profile import Profile
from gpusim.machine.streaming import KERNEL
from gpusim.policies import decorators as policy
from gpusim.policies.planning import EVICT, Schedule, View
from gpusim.trace.build import TraceBuilder
from gpusim.trace.launches import launch_text
from gpusim.trace.trace import Trace

_TOGETHER = 1 << 32  # bytes of host memory that are swapped at once, at most
_WARP = 32  # threads whose accesses are one request where they are neighbours
_LEAVES = "leaves"


@policy.plan(name="calibrate_leave")
def leave(view: View) -> Schedule:
    """All tensors leave the device before the operator `leaves`, where there is one."""
    trace = view.work.trace
    at = [o for o in range(trace.ops) if trace.op_names[trace.op[o]] == _LEAVES]
    return Schedule.of((o, EVICT, u) for o in at for u in range(trace.tensors))


def pageable(row: Row) -> RowProgram:
    """Tensors that a full device sends to memory that is not pinned, or that come back; the host waits for each copy."""
    size, inward = row.size_bytes or 0, row.metric.startswith("h2d")
    count = max(1, min(LARGE, _TOGETHER // max(1, size)))

    def swaps(leaving: bool, coming: bool) -> Trace:
        builder = TraceBuilder(row.series_id)
        tensors = [builder.alloc(size) for _ in range(count)]
        builder.op("fill", (), tensors, duration=0)
        builder.op(_LEAVES if leaving else "stays", (), (), duration=0)
        builder.op("needs", tensors if coming else (), (), duration=0)
        return builder.finish()

    uses = (f"host.pageable_{row.metric[:3]}", "link.latency_synchronised")
    return RowProgram(
        swaps(True, inward), count, uses, without=swaps(inward, False), place="pytorch", tiers="host(pageable=1)", plan=leave,
        moved=size,
    )  # fmt: skip


def in_place(row: Row, profile: Profile) -> RowProgram:
    """A kernel that reads or writes host memory, beside its fellow in the other direction where both were measured.

    nvbandwidth launches a block of 512 threads for each multiprocessor (kernels.cu, `copyKernel`), so that both fit.
    """
    launch = launch_text((int(profile.gpu.sm_count.value),), (512,)) if "_sm_" in row.metric else None
    size, inward = row.size_bytes or 0, row.metric.startswith(("h2d", "host_to_all", "zero_copy_read"))
    builder = TraceBuilder(row.series_id)
    started(builder)
    ways = [(inward, 1, size)]
    if "bidir" in row.metric:
        ways.append((not inward, 2, 2 * size))
    for reading, stream, moved in ways:
        below = builder.alloc(moved, "input")
        here = () if row.metric.startswith("zero_copy") else (builder.alloc(moved),)
        builder.op(KERNEL, (below,) if reading else here, here if reading else (below,), stream=stream, launch=launch)
    threads = int(row.params.get("access_bytes", FULL))
    name = "kernel_read" if inward else "kernel_write"
    known = getattr(profile.link, name) is not None
    uses = (f"link.{name}" if known else "link.h2d" if inward else "link.d2h", *(("link.both",) if len(ways) > 1 else ()))
    return among(
        row, profile,
        RowProgram(
            builder.finish(), 1, uses, 1, plan=f"zero_copy(what=inputs, access={min(FULL, _WARP * threads)})", moved=size
        ),
    )  # fmt: skip


def among(row: Row, profile: Profile, alone: RowProgram) -> RowProgram:
    """The program of one GPU while as many others as the row says do the same."""
    gpus = meaning.together_with(row)
    names = [n for n in _shared(row) if getattr(profile.host, n) is not None]
    if gpus == 1 or not names:
        return alone
    changes: dict[str, Any] = {"tiers": f"host(gpus={gpus})", "uses": (*alone.uses, *(f"host.{n}" for n in names))}
    return RowProgram(**{**alone.__dict__, **changes})


def _shared(row: Row) -> tuple[str, ...]:
    """What GPUs that all copy at once share."""
    direction = "all_h2d" if row.metric.startswith("host_to_all") else "all_d2h"
    return ("all_h2d", "all_d2h", "all_both") if "bidir" in row.metric else (direction,)
