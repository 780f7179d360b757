"""How long a kernel takes that does nothing but move bytes: the profile's own rates, by what it reads, writes and touches.

Such kernels are what bandwidth tests run, under the names below; real operators have the model of `kernels`.
Reading alone, writing alone and both at once have a rate each; between them the time per byte is interpolated.  The curves of
the profile say how the rates change with the bytes that the kernel touches, as long as these stay in L2; without them L2
changes nothing.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from gpusim.machine.profile import Curve, Profile
from gpusim.trace.trace import Trace

KERNEL, COPY, SHARED = "stream.kernel", "stream.memcpy", "stream.shared"
"""A kernel; a copy within the device's memory that the driver makes; a kernel all of whose multiprocessors read the same."""

_READS = 0.73
"""Rate of reads in L2 as a share of that of copies, where no curve of reads is known: 2857 of 3893 GB/s on an A100 80 GB, by
gpu-l2-stream of github.com/RRZE-HPC/gpu-benches."""

_SHARED = 36.0
"""Bytes a clock that L2 gives each multiprocessor when all read the same, where no curve says it: 35 on an H100 PCIe, 38 on a
GH200, by gpu-l2-cache of the same benchmarks.  Both halves of such an L2, as of an A100's, then hold all of it."""
_HALVED = ("Ampere", "Hopper")
_HELD, _GONE = 0.6, 1.3  # shares of the L2's size: below the one all comes from it, above the other nothing


def streams(name: str) -> bool:
    """Whether an operator of this name does nothing but move bytes."""
    return name in (KERNEL, COPY, SHARED)


def streaming_times(trace: Trace, rows: npt.NDArray[np.int64], profile: Profile) -> npt.NDArray[np.int64]:
    """(n,) ns of the operators `rows`, with what an empty kernel takes."""
    empty = profile.launch.empty.value if profile.launch.empty else 0.0
    return np.array([round(empty + _time(trace, int(row), profile)) for row in rows], np.int64)


def _time(trace: Trace, row: int, profile: Profile) -> float:
    read, written = int(trace.read_bytes[row]), int(trace.written_bytes[row])
    moved = read + written
    peak = profile.gpu.peak.get("fp32")
    computing = float(trace.flops[row]) / peak.value if peak else 0.0
    if moved == 0:
        return computing * 1e9
    if trace.op_names[trace.op[row]] == COPY:
        return moved / profile.memory.copy_engine.value * 1e9
    touched = min(moved, _touched(trace, row) or moved)
    if trace.op_names[trace.op[row]] == SHARED:
        return moved / shared(profile, touched) * 1e9
    of_reading, of_copying, of_writing = rates(profile, touched)
    share = written / moved
    if share <= 0.5:
        per_byte = (1 - 2 * share) / of_reading + 2 * share / of_copying
    else:
        per_byte = (2 - 2 * share) / of_copying + (2 * share - 1) / of_writing
    return max(moved * per_byte, computing) * 1e9


def rates(profile: Profile, touched: int) -> tuple[float, float, float]:
    """Bytes/s of kernels that read, read and write alike, and write, when they touch so many bytes."""
    memory = profile.memory
    copying = at(memory.copy_curve, touched) or memory.copy.value
    gain = copying / memory.copy.value  # what L2 adds
    reading = at(memory.read_curve, touched) or max(memory.read.value, copying * _READS if gain > 1 else 0.0)
    return reading, copying, memory.write.value * gain


def shared(profile: Profile, touched: int) -> float:
    """Bytes/s of kernels all of whose multiprocessors read the same bytes, so many."""
    memory, gpu = profile.memory, profile.gpu
    curve = memory.shared_curve
    if not curve and gpu.architecture in _HALVED and memory.kind.startswith("HBM"):
        inside = _SHARED * gpu.sm_count.value * gpu.boost_clock.value
        curve = ((int(_HELD * gpu.l2.value), inside), (int(_GONE * gpu.l2.value), memory.read.value))
    return at(curve, touched) or rates(profile, touched)[0]


def at(curve: Curve, size: int) -> float:
    """The curve at this size, linear in the logarithm of it; 0 without a curve."""
    if not curve:
        return 0.0
    sizes, values = zip(*curve, strict=True)
    return float(np.interp(math.log2(max(1, size)), np.log2(sizes), values))


def _touched(trace: Trace, row: int) -> int:
    """Bytes of the tensors that the operator names."""
    read = trace.read_id[trace.read_start[row] : trace.read_start[row + 1]]
    written = trace.write_id[trace.write_start[row] : trace.write_start[row + 1]]
    return int(trace.size[np.union1d(read, written)].sum())
