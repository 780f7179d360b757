"""A run as a PyTorch memory snapshot: the plain pickle that torch.cuda._memory_viz and pytorch.org/memory_viz open.

Format: the documentation of torch.cuda.memory._snapshot and the files that PyTorch 2.13 writes.
"""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np

from gpusim.results import log as logs
from gpusim.results.heap_over_time import settled
from gpusim.studies.fragmentation.heap import History
from gpusim.trace.trace import ALLOC, Trace

MOST_SMALL = 2 << 20  # bytes of a segment of PyTorch's small pool
_ACTIONS = {logs.RESERVE: "segment_alloc", logs.RELEASE: "segment_free", logs.PLACE: "alloc", logs.UNPLACE: "free"}
_OF_RUNS = {logs.RESERVE: "segment_map", logs.RELEASE: "segment_unmap"}  # of an allocator whose neighbouring segments are one
DEVICE = 0


def snapshot(log: Any, trace: Trace, *, title: str, microseconds: bool = True) -> dict[str, Any]:
    """The snapshot of one run from its event log.

    title         what ran, kept under `allocator_settings`
    microseconds  the log's times are nanoseconds; else they are numbers of requests, and a microsecond each
    A tensor that is swapped out and in again is freed and allocated anew.
    """
    requested, frames, stream = trace.size, _frames(trace), _streams(trace)
    # A request of no bytes has no block, and PyTorch records none.
    log = settled(log)
    device = log[(log["b"] == DEVICE) & np.isin(log["kind"], list(_ACTIONS)) & (log["bytes"] > 0)]
    joined = _joined(device)
    actions = {**_ACTIONS, **(_OF_RUNS if joined else {})}
    events: list[dict[str, Any]] = []
    for t, kind, unit, addr, size in zip(*(device[c].tolist() for c in ("t", "kind", "a", "addr", "bytes")), strict=True):
        event = {"addr": addr, "size": size, "stream": 0, "time_us": t // 1000 if microseconds else t, "frames": []}
        if kind in (logs.PLACE, logs.UNPLACE):
            known = unit < len(requested)
            event |= {
                "size": int(requested[unit]) if known else size,
                "stream": int(stream[unit]) if known else 0,
                "frames": frames[unit] if known else [],
            }
        if kind == logs.UNPLACE:
            events += [{"action": f"free_{step}", **event} for step in ("requested", "completed")]
        else:
            events.append({"action": actions[kind], **event})
    return {
        "segments": _segments(log, trace, frames, stream, expandable=joined),
        "device_traces": [events],
        "allocator_settings": {"PYTORCH_CUDA_ALLOC_CONF": "", "gpusim": title},
        "external_annotations": [],
    }


def dump(found: dict[str, Any]) -> bytes:
    """The file's bytes; equal snapshots give equal bytes."""
    return pickle.dumps(found, protocol=4)


def _joined(log: Any) -> bool:
    """Whether the allocator held neighbouring ranges as one, which PyTorch does with expandable segments alone."""
    taken = {(int(row["addr"]), int(row["bytes"])) for row in log[log["kind"] == logs.RESERVE]}
    given = {(int(row["addr"]), int(row["bytes"])) for row in log[log["kind"] == logs.RELEASE]}
    left = _final(log).segments
    return not (given | set(zip(left.addr.tolist(), left.bytes.tolist(), strict=True))) <= taken


def _final(log: Any) -> Any:
    """The heap at the end of the log."""
    end = int(log["t"][-1]) if len(log) else 0
    return History(log, end).at(end)


def _segments(log: Any, trace: Trace, frames: list[Any], stream: Any, *, expandable: bool) -> list[dict[str, Any]]:
    """The final state: segments by address, each with all its blocks, free ones as well."""
    heap = _final(log)
    found: list[dict[str, Any]] = [
        {
            "device": DEVICE, "address": addr, "total_size": size, "allocated_size": 0, "active_size": 0,
            "requested_size": 0, "stream": 0, "segment_type": "small" if size <= MOST_SMALL else "large",
            "segment_pool_id": (0, 0), "is_expandable": expandable, "frames": [], "blocks": [],
        }
        for addr, size in zip(heap.segments.addr.tolist(), heap.segments.bytes.tolist(), strict=True)
    ]  # fmt: skip
    for home, unit, addr, size in zip(
        heap.home.tolist(), heap.blocks.unit.tolist(), heap.blocks.addr.tolist(), heap.blocks.bytes.tolist(), strict=True
    ):
        known = unit < trace.tensors
        asked = int(trace.size[unit]) if known else size
        segment = found[home]
        segment["blocks"].append(
            {"address": addr, "size": size, "requested_size": asked, "state": "active_allocated",
             "frames": frames[unit] if known else []}
        )  # fmt: skip
        segment["stream"] = int(stream[unit]) if known else 0
        segment["allocated_size"] += size
        segment["active_size"] += size
        segment["requested_size"] += asked
    for home, addr, size in zip(heap.of.tolist(), heap.hole_addr.tolist(), heap.hole_bytes.tolist(), strict=True):
        found[home]["blocks"].append(
            {"address": addr, "size": size, "requested_size": 0, "state": "inactive", "frames": []}
        )  # fmt: skip
    for segment in found:
        segment["blocks"].sort(key=lambda block: block["address"])
    return found


def _frames(trace: Trace) -> list[list[dict[str, Any]]]:
    """A stack of one frame per tensor: its category, which of a snapshot is "file.py:function"."""
    stacks = []
    for category in trace.categories:
        file, _, name = category.rpartition(":")
        stacks.append([{"filename": file or trace.name, "line": 0, "name": name or category}])
    return [stacks[c] for c in trace.category.tolist()]


def _streams(trace: Trace) -> Any:
    """(tensors,) the stream on which each was allocated."""
    found = np.zeros(trace.tensors, np.int64)
    made = trace.kind == ALLOC
    found[trace.arg[made]] = trace.stream[made]
    return found
