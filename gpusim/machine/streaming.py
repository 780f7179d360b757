"""How long kernels take that tests of a machine run: by the bytes that they move and touch, and by the profile's own rates.

They are operators of these names; real operators have the model of `kernels`.  What they read, write and touch is the
operator's; the rest stands behind the bar of its shape (`gpusim.trace.shapes`), "-> | threads=27648 width=8".

    stream.kernel     reads and writes; `flops` of it compute
        threads, width    so many threads, each of which moves `width` bytes from one of its loads to the next; without
                          them the device is full
        passes, blocks    goes over its bytes so many times; that many thread blocks wait for each other after each
    stream.shared     reads; all multiprocessors read all bytes, each elsewhere, with many loads under way; `flops` of
                      it compute
    stream.in_step    reads; one thread block on each multiprocessor, all read the same bytes at the same time
    stream.memcpy     a copy within the device's memory that the driver makes
    stream.chase      reads; one thread makes `loads` loads, each at the address that the one before has found
        at                device, or host, or peer: whose memory

Reading alone, writing alone and both at once have a rate each; between them the time per byte is interpolated.  The curves of
the profile say how the rates change with the bytes that the kernel touches; where it has none, rules by generation do
(`generations`, `loads`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from gpusim.base.errors import ProfileError, TraceError, suggest
from gpusim.machine import generations, loads
from gpusim.machine.generations import clocks, generation, halved
from gpusim.machine.profile import Curve, Profile
from gpusim.trace.shapes import parse
from gpusim.trace.trace import Trace

KERNEL, SHARED, IN_STEP, COPY, CHASE = "stream.kernel", "stream.shared", "stream.in_step", "stream.memcpy", "stream.chase"
_PARAMETERS: Mapping[str, tuple[str, ...]] = {
    KERNEL: ("threads", "width", "passes", "blocks"), SHARED: (), IN_STEP: (), COPY: (), CHASE: ("loads", "at"),
}  # fmt: skip
_FAMILY = "stream."

_SHARED = {True: (0.6, 1.3), False: (0.8, 1.15)}
"""Whether L2 has halves -> shares of its size between which bytes that all multiprocessors read cease to come from it; and"""
_PARTS = {True: (0.5, 0.9), False: (0.75, 1.45)}
"""of those of which each has a part.  A half keeps copies of the other's.  An A100 80 GB, an L40."""
_IN_STEP = {True: (0.5, 0.65), False: (0.9, 1.1)}
_L1_GONE = 2.1
"""Times what L1 holds, from which on nothing of what goes through it comes from it."""
IN_TURN = 0.2
"""Share of the shorter of computing and moving that the longer does not hide: 0.15 on an A100 40 GB, 0.3 on a GH200."""


def streams(name: str) -> bool:
    """Whether an operator of this name is a test's.  Raises TraceError for one of the family that is none of them."""
    if name.startswith(_FAMILY) and name not in _PARAMETERS:
        raise TraceError(f"'{name}' is no kernel that tests run", hint=suggest(name, _PARAMETERS))
    return name in _PARAMETERS


def streaming_times(trace: Trace, rows: npt.NDArray[np.int64], profile: Profile) -> npt.NDArray[np.int64]:
    """(n,) ns of the operators `rows`, with what an empty kernel, or copy, takes."""
    empty = profile.launch.empty.value if profile.launch.empty else 0.0
    start = {COPY: profile.launch.copy.value} if profile.launch.copy else {}
    starts = [start.get(trace.op_names[op], empty) for op in trace.op[rows]]
    return np.array([round(s + _time(trace, int(row), profile)) for s, row in zip(starts, rows, strict=True)], np.int64)


def parameters(name: str, text: str) -> dict[str, str]:
    """What stands behind the bar of a test's shape.  Raises TraceError for what its kind does not know."""
    found = dict(parse(text).parameters) if text else {}
    for key, value in found.items():
        if key not in _PARAMETERS[name]:
            raise TraceError(f"{name} has no '{key}'", hint=suggest(key, _PARAMETERS[name]))
        if key != "at" and not (value.isdigit() and int(value)):
            raise TraceError(f"the {key} of {name} are '{value}', not a number above 0")
    for one, other in (("threads", "width"), ("passes", "blocks")):
        if (one in found) != (other in found):
            raise TraceError(f"{name} has only one of '{one}' and '{other}'")
    return found


def _time(trace: Trace, row: int, profile: Profile) -> float:
    name = trace.op_names[trace.op[row]]
    given = parameters(name, trace.shapes[trace.shape[row]] if trace.shape[row] >= 0 else "")
    read, written = int(trace.read_bytes[row]), int(trace.written_bytes[row])
    moved = read + written
    touched = _touched(trace, row) or moved
    if name == CHASE:
        return int(given.get("loads", 1)) * _load(profile, given.get("at", "device"), touched)
    computing = float(trace.flops[row]) / multiply_adds(profile) * 1e9 if trace.flops[row] else 0.0
    if moved == 0:
        return computing
    touched = min(moved, touched)
    if name == COPY:
        rate = profile.memory.copy_engine.value
    elif name == SHARED:
        rate = shared(profile, touched)
    elif name == IN_STEP:
        rate = in_step(profile, touched)
    else:
        rate = _streamed(profile, read, written, touched)
    if "threads" in given:
        rate = loads.reached(profile, rate, float(given["width"]), float(given["threads"]), touched, read > 0)
    moving = moved / rate * 1e9
    passes = int(given.get("passes", 0))
    waiting = passes * loads.barrier(profile, int(given["blocks"])) if passes else 0.0
    return waiting + max(moving, computing) + IN_TURN * min(moving, computing)


def _load(profile: Profile, at: str, touched: int) -> float:
    """ns of one load of a chain."""
    if at == "device":
        return loads.latency(profile, touched)
    if at not in ("host", "peer"):
        raise TraceError(f"{CHASE} is at '{at}', which is no memory", hint=suggest(at, ("device", "host", "peer")))
    far = profile.link.load if at == "host" else profile.peer.load if profile.peer else None
    if far is None:
        number = "link.load" if at == "host" else "peer.load"
        raise ProfileError(f"the profile '{profile.name}' has no '{number}', which a chain of loads needs there")
    return far.value


def multiply_adds(profile: Profile) -> float:
    """flop/s of fp32 loops."""
    if profile.gpu.fma:
        return profile.gpu.fma.value
    if "fp32" not in profile.gpu.peak:
        raise ProfileError(f"the profile '{profile.name}' has no fp32 peak, which kernel times need")
    return profile.gpu.peak["fp32"].value * generations.multiply_adds(profile)


def _streamed(profile: Profile, read: int, written: int, touched: int) -> float:
    of_reading, of_copying, of_writing = rates(profile, touched)
    share = written / (read + written)
    if share <= 0.5:
        return 1 / ((1 - 2 * share) / of_reading + 2 * share / of_copying)
    return 1 / ((2 - 2 * share) / of_copying + (2 * share - 1) / of_writing)


def rates(profile: Profile, touched: int) -> tuple[float, float, float]:
    """Bytes/s of kernels that read, read and write alike, and write, when they touch so many bytes."""
    memory = profile.memory
    copying = at(memory.copy_curve or _in_l2(profile), touched)
    of, in_l2 = generation(profile), copying > memory.copy.value
    # A copy has a store for each load, so a kernel that reads has half as many bytes under way.
    alone = loads.narrower(profile, copying, 2 * loads.WORD, touched) if in_l2 else 0.0
    reading = at(memory.read_curve, touched) or max(memory.read.value, alone)
    return reading, copying, max(memory.write.value, copying * of.writes if in_l2 else 0.0)


def _in_l2(profile: Profile) -> Curve:
    """Of kernels that read and write alike, by the rules of the generation."""
    held, gone = _PARTS[halved(profile)]
    return _falling(profile, generation(profile).copies * clocks(profile), profile.memory.copy.value, held, gone)


def shared(profile: Profile, touched: int) -> float:
    """Bytes/s of kernels all of whose multiprocessors read the same bytes, so many."""
    inside = generation(profile).shared * clocks(profile)
    falling = _falling(profile, inside, profile.memory.read.value, *_SHARED[halved(profile)])
    return at(profile.memory.shared_curve or falling, touched)


def _falling(profile: Profile, inside: float, beyond: float, held: float, gone: float) -> Curve:
    """From the rate in L2 to that of memory between these shares of its size."""
    l2 = profile.gpu.l2.value
    return ((int(held * l2), max(inside, beyond)), (int(gone * l2), beyond))


def in_step(profile: Profile, touched: int) -> float:
    """Bytes/s of one thread block on each multiprocessor, all of which read the same bytes at the same time."""
    if profile.memory.in_step_curve:
        return at(profile.memory.in_step_curve, touched)
    of, l2, clock = generation(profile), profile.gpu.l2.value, clocks(profile)
    held, gone = _IN_STEP[halved(profile)]
    curve = (
        (of.l1, of.l1_rate), (int(_L1_GONE * of.l1), of.in_step),
        (int(held * l2), of.in_step), (int(gone * l2), of.in_step * of.beyond),
    )  # fmt: skip
    rate = at(curve, touched)
    return clock * touched / (touched / rate + loads.LOOP)


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
