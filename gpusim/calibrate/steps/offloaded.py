"""A recorded step as it would run with its activations in host memory: the copies of `hooks`, written into the trace."""

from __future__ import annotations

import numpy as np

from gpusim.calibrate.steps.recording import AHEAD, LEAST, OFFLOAD
from gpusim.trace.build import TraceBuilder
from gpusim.trace.trace import ALLOC, COPY_IN, COPY_OUT, FREE, HOST_WORK, OP, PHASE, RECORD, SYNC, WAIT, Trace

_SIDE = 1  # the stream of the copies


def saved(trace: Trace) -> list[tuple[int, int, int]]:
    """(tensor, the forward pass's last operator that touches it, the backward pass's first), in the order of the forward pass.

    Parameters, gradients, optimizer states and inputs are no activations.
    """
    forward = np.array([name.endswith("fwd") for name in trace.phases] + [False])[trace.phase]
    backward = np.array([name.endswith("bwd") for name in trace.phases] + [False])[trace.phase]
    begun: dict[int, int] = {}
    found: dict[int, tuple[int, int]] = {}
    kept = {i for i, name in enumerate(trace.categories) if name in ("param", "buffer", "grad", "opt", "input")}
    for o in range(trace.ops):
        touched = {*trace.read_id[trace.read_start[o] : trace.read_start[o + 1]].tolist(),
                   *trace.write_id[trace.write_start[o] : trace.write_start[o + 1]].tolist()}  # fmt: skip
        for u in touched:
            if forward[o]:
                begun[u] = o
            elif backward[o] and u in begun and u not in found and trace.category[u] not in kept and trace.size[u] >= LEAST:
                found[u] = begun[u], o
    return sorted(((u, a, b) for u, (a, b) in found.items()), key=lambda x: (x[1], x[0]))


def offloaded(trace: Trace, way: str) -> Trace:
    """The step in this way.  Only time is asked of it: activations keep their place on the device meanwhile."""
    builder = TraceBuilder(f"{trace.name} {way}")
    builder.meta.update(trace.meta)
    moved = saved(trace)
    order = [u for u, *_ in moved]
    out: dict[int, list[int]] = {}
    back: dict[int, list[int]] = {}
    for u, after, before in moved:
        out.setdefault(after, []).append(u)
        back.setdefault(before, []).append(u)
    ahead = 0 if way == OFFLOAD else AHEAD
    brought: set[int] = set()
    events = 0

    def copy(u: int, activity: int) -> int:
        """On the program's stream, or on the other one with an event for it; the event, -1 for none."""
        nonlocal events
        side = 0 if way == OFFLOAD else _SIDE
        builder.op("copy", (u,), (), read_bytes=int(trace.size[u]), stream=side, activity=activity)
        if not side:
            return -1
        builder.event(RECORD, events, stream=side)
        events += 1
        return events - 1

    ready: dict[int, int] = {}
    begun = 0  # ns of the host's own work so far; what it waits for comes on top
    for kind, arg, time in zip(trace.kind.tolist(), trace.arg.tolist(), trace.time.tolist(), strict=True):
        if time > begun:
            builder.op("host", (), (), duration=time - begun, activity=HOST_WORK)
            begun = time
        if kind == ALLOC:
            builder.alloc(int(trace.size[arg]), trace.categories[trace.category[arg]])
        elif kind == FREE:
            builder.free(arg)
        elif kind == PHASE:
            builder.begin_phase(trace.phases[arg])
        elif kind == SYNC:
            builder.event(SYNC)
        elif kind == OP:
            for u in back.get(arg, ()):
                at = order.index(u)
                for other in order[max(0, at - ahead) : at + 1][::-1]:
                    if other not in brought:
                        brought.add(other)
                        ready[other] = copy(other, COPY_IN)
                if ready[u] >= 0:
                    builder.event(WAIT, ready[u], stream=0)
            _operate(builder, trace, arg)
            for u in out.get(arg, ()):
                if way == OFFLOAD:
                    copy(u, COPY_OUT)
                    builder.event(SYNC)
                else:
                    builder.event(RECORD, events, stream=0)
                    builder.event(WAIT, events, stream=_SIDE)
                    events += 1
                    copy(u, COPY_OUT)
    return builder.finish()


def _operate(builder: TraceBuilder, trace: Trace, o: int) -> None:
    reads, writes = (ids[start[o] : start[o + 1]].tolist() for ids, start in (
        (trace.read_id, trace.read_start), (trace.write_id, trace.write_start)
    ))  # fmt: skip
    builder.op(
        trace.op_names[trace.op[o]], reads, writes, duration=int(trace.duration[o]), flops=float(trace.flops[o]),
        read_bytes=int(trace.read_bytes[o]), written_bytes=int(trace.written_bytes[o]), activity=int(trace.activity[o]),
        dtype=trace.dtypes[trace.dtype[o]] if trace.dtype[o] >= 0 else None,
        shape=trace.shapes[trace.shape[o]] if trace.shape[o] >= 0 else None,
    )  # fmt: skip
