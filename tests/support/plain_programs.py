"""Random programs for the comparison with the plain model: streams, kernels, copies, waits, and what kernels want."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpusim.trace import trace as tr
from gpusim.trace.build import TraceBuilder
from gpusim.trace.trace import Trace

KINDS = (tr.KERNEL, tr.COPY_IN, tr.COPY_OUT, tr.COLLECTIVE, tr.COPY_PEER, tr.NVME_READ, tr.NVME_WRITE, tr.HOST_WORK)
OFTEN = (0.6, 0.13, 0.13, 0.04, 0.03, 0.02, 0.02, 0.03)


def program(seed: int) -> tuple[Trace, Any]:
    """A trace of a few dozen operators on one to four streams, and int64[O] times in ns."""
    rng = np.random.default_rng(seed)
    builder = TraceBuilder(f"plain {seed}")
    streams = int(rng.integers(1, 5))
    tensors = [builder.alloc(int(rng.integers(1, 1 << 16))) for _ in range(int(rng.integers(1, 6)))]
    longest = int(rng.choice([300, 5_000, 100_000]))
    apart = rng.random() < 0.5  # its streams share no tensors
    durations = []
    for _ in range(int(rng.integers(3, 40))):
        stream, what = int(rng.integers(0, streams)), rng.random()
        if what < 0.05:
            builder.event(tr.SYNC)
        elif what < 0.13:
            builder.event(tr.RECORD, int(rng.integers(0, 3)), stream=stream)
        elif what < 0.21:
            builder.event(tr.WAIT, int(rng.integers(0, 3)), stream=stream)
        elif what < 0.25:
            tensors.append(builder.alloc(int(rng.integers(1, 1 << 16))))
        else:
            durations.append(_operator(rng, builder, stream, [] if apart else tensors, longest))
    builder.meta["stream_priority"] = {str(s): int(rng.integers(-2, 1)) for s in range(streams) if rng.random() < 0.5}
    return builder.finish(), np.array(durations, np.int64)


def _operator(rng: np.random.Generator, builder: TraceBuilder, stream: int, tensors: list[int], longest: int) -> int:
    """Add one operator; its time."""
    activity = int(rng.choice(KINDS, p=OFTEN))
    took = int(rng.integers(1, longest))
    recorded = rng.random() < (0.5 if activity == tr.KERNEL else 0.15)
    touched = {name: tuple(int(x) for x in rng.choice(tensors, min(len(tensors), int(rng.integers(0, 3))), replace=False))
               for name in ("reads", "writes")} if tensors else {"reads": (), "writes": ()}
    builder.op(
        "op", touched["reads"], touched["writes"], duration=took if recorded else -1, stream=stream, activity=activity,
        read_bytes=int(rng.integers(1, 30 * longest)),
    )  # fmt: skip
    return took
