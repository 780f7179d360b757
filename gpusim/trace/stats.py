"""What is in a trace, as plain data: counts, the live peak, lifetimes, reuse, phases, bounds, and what it lacks."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import types

from gpusim.base.compiled import kept
from gpusim.trace.answers import answers
from gpusim.trace.trace import ALLOC, EVENT_KINDS, FREE, I64, OP, PHASE, Trace

ROUND = 512  # bytes: the smallest block of PyTorch's caching allocator

_PERCENTILES = {"p10": 10, "p50": 50, "p90": 90, "p99": 99, "max": 100}


def describe(trace: Trace) -> dict[str, Any]:
    """A description of the trace that JSON can hold.  Bytes as requested; times ns; gaps and lifetimes count operators.

    name, hash, counts {tensors, events, ops, accesses, shaped (operators with a shape), <each event kind>}
    meta {format, source, licence, ...}, lacks, warnings
    answers   what it can answer: {allocator, accesses, times, flops}, see gpusim.trace.answers
    live      peak, peak_rounded (each tensor to 512 bytes), start, end: bytes; peak_event, peak_op, peak_phase
    bounds    live_peak, widest_operator and all_tensors: bytes that no policy can go below, and that need no policy
    sizes     percentiles of tensor sizes
    lifetime  percentiles in operators (in events if there are none) and a histogram by powers of two; never_freed
    reuse     gap: operators between two uses of a tensor; distance: bytes of LRU memory with which the second
              hits; lru: what LRU brings in again when memory is a share of the live peak
    categories, phases, operators   tables, largest first (phases in the order of the program)
    """
    live = live_bytes(trace, trace.size)
    rounded = live_bytes(trace, -(-trace.size // ROUND) * ROUND)
    peak = int(live.argmax()) if trace.events else -1
    op_of = np.cumsum(trace.kind == OP) - 1  # the latest operator at each event
    peak_op = int(op_of[peak]) if peak >= 0 else -1
    return {
        "name": trace.name,
        "hash": trace.content_hash,
        "counts": {
            "tensors": trace.tensors,
            "events": trace.events,
            "ops": trace.ops,
            "accesses": len(trace.read_id) + len(trace.write_id),
            "shaped": int((trace.shape >= 0).sum()),
            **{k: int(n) for k, n in zip(EVENT_KINDS, np.bincount(trace.kind, minlength=11), strict=True) if n},
        },
        "meta": {k: v for k, v in trace.meta.items() if k not in ("lacks", "warnings")},
        "answers": asdict(answers(trace)),
        "lacks": trace.meta.get("lacks", []),
        "warnings": trace.meta.get("warnings", []),
        "streams": len(np.unique(trace.stream)),
        "recorded_ns": int(trace.time.max(initial=-1)),
        "live": {
            "peak": int(live.max(initial=0)),
            "peak_rounded": int(rounded.max(initial=0)),
            "start": _start_bytes(trace, live),
            "end": int(live[-1]) if trace.events else 0,
            "peak_event": peak,
            "peak_op": peak_op,
            "peak_phase": trace.phases[trace.phase[peak_op]] if peak_op >= 0 and trace.phase[peak_op] >= 0 else "",
        },
        "bounds": {
            "live_peak": int(rounded.max(initial=0)),
            "widest_operator": widest_operator(trace)[0],
            "all_tensors": int(trace.size.sum()),
        },
        "sizes": _percentiles(trace.size),
        "lifetime": _lifetimes(trace, op_of),
        "reuse": _reuse(trace, int(live.max(initial=0))),
        "categories": _categories(trace, peak),
        "phases": _phases(trace, live),
        "operators": _operators(trace),
    }


def live_bytes(trace: Trace, size: I64) -> I64:
    """(E,) bytes of live tensors after each event, when tensor t takes size[t] bytes."""
    step = np.zeros(trace.events, np.int64)
    born, freed = trace.kind == ALLOC, trace.kind == FREE
    step[born] = size[trace.arg[born]]
    step[freed] = -size[trace.arg[freed]]
    return np.cumsum(step)


def widest_operator(trace: Trace) -> tuple[int, int]:
    """(bytes, operator): the most that one operator touches, each tensor once and rounded to 512; (0, -1) if none."""
    if not trace.ops:
        return 0, -1
    tensor, op, _ = accesses(trace)
    rounded = -(-trace.size // ROUND) * ROUND
    touched = np.bincount(op, rounded[tensor].astype(np.float64), trace.ops)
    return int(touched.max()), int(touched.argmax())


def accesses(trace: Trace) -> tuple[I64, I64, npt.NDArray[np.bool_]]:
    """(A,) tensor, operator and whether it writes, by operator; a tensor that an operator names twice counts once."""
    ops = np.arange(trace.ops)
    op = np.concatenate([np.repeat(ops, np.diff(trace.read_start)), np.repeat(ops, np.diff(trace.write_start))])
    tensor = np.concatenate([trace.read_id, trace.write_id])
    write = np.arange(len(op)) >= len(trace.read_id)
    order = np.lexsort((write, tensor, op))
    op, tensor, write = op[order], tensor[order], write[order]
    last = np.ones(len(op), bool)  # of equal (operator, tensor) the last, which is a write if any is
    last[:-1] = (np.diff(op) != 0) | (np.diff(tensor) != 0)
    return tensor[last], op[last], write[last]


def _start_bytes(trace: Trace, live: I64) -> int:
    """Bytes that existed before the recording: as its importer found, else what is allocated before anything runs."""
    found = trace.meta.get("start", {}).get("bytes")
    if isinstance(found, int):
        return found
    begun = np.flatnonzero((trace.kind == OP) | (trace.kind == PHASE))
    if not len(begun):
        return 0
    first = int(begun[0])
    if trace.kind[first] == OP:  # the outputs of the first operator are not older than it
        old = trace.read_id[: trace.read_start[1]]
        while first and trace.arg[first - 1] in trace.write_id[: trace.write_start[1]] and trace.arg[first - 1] not in old:
            first -= 1
    return int(live[first - 1]) if first else 0


def _percentiles(values: npt.NDArray[Any]) -> dict[str, float]:
    if not len(values):
        return {}
    found = np.percentile(values, list(_PERCENTILES.values()), method="lower")
    return {name: int(value) for name, value in zip(_PERCENTILES, found, strict=True)}


def _histogram(values: I64) -> list[list[int]]:
    """[[low, high, count], ...] by powers of two: 0, 1, 2-3, 4-7, ..."""
    if not len(values):
        return []
    counts = np.bincount(np.frexp(values.astype(np.float64))[1])  # 0 -> 0, 1 -> 1, 2-3 -> 2, 4-7 -> 3
    return [[2 ** (b - 1) if b else 0, 2**b - 1, int(n)] for b, n in enumerate(counts) if n]


def _lifetimes(trace: Trace, op_of: I64) -> dict[str, Any]:
    """Of tensors that are freed: operators issued between alloc and free; events where there are no operators."""
    freed = np.flatnonzero(trace.kind == FREE)
    born = np.empty(trace.tensors, np.int64)
    born[trace.arg[trace.kind == ALLOC]] = np.flatnonzero(trace.kind == ALLOC)
    start = born[trace.arg[freed]]
    length = op_of[freed] - op_of[start] if trace.ops else freed - start
    return {
        "unit": "operators" if trace.ops else "events",
        **_percentiles(length),
        "histogram": _histogram(length),
        "freed": len(freed),
        "never_freed": trace.tensors - len(freed),
    }


def _reuse(trace: Trace, peak: int) -> dict[str, Any]:
    tensor, op, _ = accesses(trace)
    order = np.lexsort((op, tensor))
    same = np.diff(tensor[order]) == 0
    gap = np.diff(op[order])[same]
    distance = lru_bytes(trace)
    uses = np.bincount(tensor, minlength=trace.tensors)
    return {
        "uses": _percentiles(uses),
        "never_used": int((uses == 0).sum()) if trace.ops else 0,
        "gap": {**_percentiles(gap), "histogram": _histogram(gap)},
        "distance": {**_percentiles(distance[distance >= 0]), "histogram": _histogram(distance[distance >= 0])},
        "lru": [
            {
                "share": share / 100,
                "memory": peak * share // 100,
                "misses": int((distance > peak * share // 100).sum()),
                "bytes": int(trace.size[tensor[distance > peak * share // 100]].sum()),
            }
            for share in (95, 90, 80, 70, 60, 50, 40)
        ],
    }


def lru_bytes(trace: Trace) -> I64:
    """(A,) the least memory with which LRU still holds the tensor at each access of `accesses`; -1 at its first use.

    Exact for whole tensors that enter at their first use and leave at once when freed: a tensor is evicted when the live
    ones used after it, and itself, have ever exceeded the memory since its last use.  So one pass gives the misses of LRU
    at every memory size (after Mattson et al., IBM Systems J. 9, 1970).  O(A log A).
    """
    tensor, op, _ = accesses(trace)
    start = np.searchsorted(op, np.arange(trace.ops + 1)).astype(np.int64)
    readonly: list[npt.NDArray[Any]] = [tensor.astype(np.int64), start, trace.kind, trace.arg, trace.size]
    for array in readonly:
        array.flags.writeable = False
    return np.asarray(_lru_bytes(*readonly))


_INTS: Any = types.Array(types.int64, 1, "C")
_READ: Any = types.Array(types.int64, 1, "C", readonly=True)
_KINDS: Any = types.Array(types.uint8, 1, "C", readonly=True)


@kept(types.void(_INTS, _INTS, types.int64))
def _push(pending, highest, leaf):  # type: ignore[no-untyped-def]
    """Hands what the nodes above a leaf have pending down to their children, from the root."""
    level = 0
    while leaf >> level > 1:
        level += 1
    for up in range(level, 0, -1):
        node = leaf >> up
        if pending[node] != 0 or highest[node] != 0:
            for child in (2 * node, 2 * node + 1):
                highest[child] = max(highest[child], pending[child] + highest[node])
                pending[child] += pending[node]
            pending[node] = 0
            highest[node] = 0


@kept(types.void(_INTS, _INTS, types.int64, types.int64, types.int64))
def _add(pending, highest, first, last, size):  # type: ignore[no-untyped-def]
    """Adds size to the leaves first..last-1 and raises their highest values so far."""
    leaves = pending.size // 2
    left, right = first + leaves, last + leaves
    if left >= right:
        return
    _push(pending, highest, left)
    _push(pending, highest, right - 1)
    while left < right:
        if left & 1:
            pending[left] += size
            highest[left] = max(highest[left], pending[left])
            left += 1
        if right & 1:
            right -= 1
            pending[right] += size
            highest[right] = max(highest[right], pending[right])
        left >>= 1
        right >>= 1


@kept(_INTS(_READ, _READ, _KINDS, _READ, _READ))
def _lru_bytes(tensor, start, kind, arg, size):  # type: ignore[no-untyped-def]
    # Leaf i of the tree belongs to access i: the live bytes used after it, now and at most since.
    leaves = 1
    while leaves < tensor.size:
        leaves *= 2
    pending = np.zeros(2 * leaves, np.int64)
    highest = np.zeros(2 * leaves, np.int64)
    latest = np.full(size.size, -1, np.int64)
    out = np.full(tensor.size, -1, np.int64)
    for e in range(kind.size):
        if kind[e] == FREE:
            if latest[arg[e]] >= 0:
                _add(pending, highest, 0, latest[arg[e]], -size[arg[e]])
        elif kind[e] == OP:
            for i in range(start[arg[e]], start[arg[e] + 1]):
                t = tensor[i]
                before = latest[t]
                if before >= 0:
                    _push(pending, highest, before + leaves)
                    out[i] = highest[before + leaves] + size[t]
                _add(pending, highest, before + 1, i, size[t])
                latest[t] = i
    return out


def _categories(trace: Trace, peak: int) -> list[dict[str, Any]]:
    count = len(trace.categories)
    alive = np.zeros(trace.tensors, bool)
    until = slice(0, peak + 1)
    alive[trace.arg[until][trace.kind[until] == ALLOC]] = True
    alive[trace.arg[until][trace.kind[until] == FREE]] = False
    tensors = np.bincount(trace.category, minlength=count)
    total = _sums(trace.category, trace.size, count)
    at_peak = _sums(trace.category[alive], trace.size[alive], count)
    table = [
        {"category": name, "tensors": int(tensors[i]), "bytes": int(total[i]), "at_peak": int(at_peak[i])}
        for i, name in enumerate(trace.categories)
        if tensors[i]
    ]
    return sorted(table, key=lambda row: (-row["at_peak"], -row["bytes"], row["category"]))


def _phases(trace: Trace, live: I64) -> list[dict[str, Any]]:
    """One row per phase; operators before the first phase are in a row without a name."""
    marks = np.flatnonzero(trace.kind == PHASE)
    number = np.full(trace.events, -1, np.int64)
    if len(marks):
        number[marks[0] :] = np.repeat(trace.arg[marks], np.diff(np.append(marks, trace.events)))
    rows = []
    for i in ([-1] if len(trace.phases) == 0 or (trace.phase < 0).any() else []) + list(range(len(trace.phases))):
        ops, events = trace.phase == i, number == i
        rows.append(
            {
                "phase": trace.phases[i] if i >= 0 else "",
                "ops": int(ops.sum()),
                "flops": float(trace.flops[ops].sum()),
                "read": int(trace.read_bytes[ops].sum()),
                "written": int(trace.written_bytes[ops].sum()),
                "allocs": int((events & (trace.kind == ALLOC)).sum()),
                "peak": int(live[events].max(initial=0)),
            }
        )
    return rows


def _operators(trace: Trace, most: int = 20) -> list[dict[str, Any]]:
    """The operators that move most bytes, by name."""
    count = len(trace.op_names)
    calls = np.bincount(trace.op, minlength=count)
    moved = _sums(trace.op, trace.read_bytes + trace.written_bytes, count)
    flops = np.bincount(trace.op, trace.flops, count)
    order = np.lexsort((-flops, -moved))[:most]
    return [
        {"operator": trace.op_names[i], "calls": int(calls[i]), "bytes": int(moved[i]), "flops": float(flops[i])}
        for i in order
        if calls[i]
    ]


def _sums(index: npt.NDArray[Any], values: I64, count: int) -> I64:
    """Exact sums by index (bincount would go through floats)."""
    out = np.zeros(count, np.int64)
    np.add.at(out, index, values)
    return out
