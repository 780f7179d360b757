"""Random programs for the comparison with the plain model: streams, kernels, copies, waits, and what kernels want."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpusim.trace import trace as tr
from gpusim.trace.build import TraceBuilder
from gpusim.trace.trace import Trace
from gpusim.trace.workload import build

KINDS = (tr.KERNEL, tr.COPY_IN, tr.COPY_OUT, tr.COLLECTIVE, tr.COPY_PEER, tr.NVME_READ, tr.NVME_WRITE, tr.HOST_WORK)
OFTEN = {  # shares of these kinds in a program
    "kernels": (0.9, 0.02, 0.02, 0.02, 0.01, 0.01, 0.01, 0.01),
    "copies": (0.1, 0.4, 0.35, 0.03, 0.03, 0.03, 0.03, 0.03),
    "all": (0.5, 0.17, 0.15, 0.06, 0.03, 0.03, 0.03, 0.03),
}


def program(seed: int) -> tuple[Trace, Any, int | None]:
    """A trace of a few dozen operators on one to four streams, int64[O] times in ns, and bytes of memory; None: enough."""
    rng = np.random.default_rng(seed)
    builder = TraceBuilder(f"plain {seed}")
    streams = int(rng.integers(1, 5))
    largest = int(rng.choice([1 << 16, 1 << 20]))
    tensors = [builder.alloc(int(rng.integers(largest // 8, largest))) for _ in range(int(rng.integers(2, 9)))]
    longest = int(rng.choice([300, 5_000, 100_000]))
    apart = rng.random() < 0.3  # its streams share no tensors
    often = OFTEN[str(rng.choice(list(OFTEN)))]
    clock = 0
    durations = []
    for _ in range(int(rng.integers(3, 40))):
        stream, what = int(rng.integers(0, streams)), rng.random()
        if what < 0.05:
            builder.event(tr.SYNC)
        elif what < 0.13:
            builder.event(tr.RECORD, int(rng.integers(0, 3)), stream=stream)
        elif what < 0.21:
            builder.event(tr.WAIT, int(rng.integers(0, 3)), stream=stream)
        elif what < 0.26:
            tensors.append(builder.alloc(int(rng.integers(1, largest))))
        elif what < 0.29 and len(tensors) > 2:
            builder.free(tensors.pop(int(rng.integers(len(tensors)))))
        elif what < 0.31:
            clock += int(rng.integers(0, 10 * longest))
            builder.begin_phase("", time=clock)
        else:
            durations.append(_operator(rng, builder, stream, [] if apart else tensors, longest, often))
    builder.meta["stream_priority"] = {str(s): int(rng.integers(-2, 1)) for s in range(streams) if rng.random() < 0.5}
    trace = builder.finish()
    work, share = build(trace, np.array(durations, np.int64)), rng.choice([np.inf, 1.2, 0.8, 0.6, 0.4])
    room = None if share == np.inf else max(int(work.live_peak * share), 3 * work.widest_operator[0] // 2)
    return trace, work.duration, room


def _operator(
    rng: np.random.Generator, builder: TraceBuilder, stream: int, tensors: list[int], longest: int, often: tuple[float, ...]
) -> int:
    """Add one operator; its time."""
    activity = int(rng.choice(KINDS, p=often))
    took = int(rng.integers(1, longest))
    recorded = rng.random() < (0.5 if activity == tr.KERNEL else 0.15)
    size = int(rng.integers(1, 30 * longest)) if activity != tr.HOST_WORK else int(took * rng.uniform(1, 15))
    reads, writes = (rng.choice(tensors, int(rng.integers(0, 3))).tolist() if tensors else [] for _ in range(2))
    builder.op(
        "op", set(reads), set(writes), duration=took if recorded else -1, stream=stream, activity=activity,
        read_bytes=size, device_time=took if recorded and rng.random() < 0.5 else -1,
    )  # fmt: skip
    return took
