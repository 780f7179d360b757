"""Bounds and ratios of a result, recomputed from the program, the memory's size and the times of its operators."""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from typing import Any

import numpy as np

from gpusim.base.compiled import kept
from gpusim.referee.report import Findings
from gpusim.results.result import Result
from gpusim.trace.trace import ALLOC, FREE, I64, OP, Trace

GRANULE = 512  # bytes to which any allocator rounds
RATIOS = (("slowdown", "bound_no_limit_ns"), ("over_oracle", "bound_oracle_ns"), ("over_best_plan", "bound_best_plan_ns"))
NEAR = 1e-9


def check(result: Result, trace: Trace, whole: Trace, duration: I64, on_wire: float, found: Findings) -> None:
    """Those that are there.

    trace     the program at the grain at which it moved
    whole     the same with whole tensors
    duration  (O,) of its operators, which say what is used next
    on_wire   bytes that cross the link for a byte of a tensor
    """
    remote = result.spec.get("remote", [])
    size = np.array(trace.size if remote else whole.size)
    size[remote] = 0
    of = trace if remote else whole
    live = most_alive(of, size)
    _equal(result.bounds, "bound_live_bytes", live, found)
    plan = result.bounds.get("bound_plan_bytes", live)
    if plan < live:
        found.say(-1, f"bound_plan_bytes is {plan}", f"at least the {live} bytes that are alive at once")
    if "bound_swap_in_bytes" in result.bounds:
        least = least_in(of, size, duration, int(result.spec["capacity"]))
        _equal(result.bounds, "bound_swap_in_bytes", int(least * on_wire), found)
    for name, bound in RATIOS:
        if name in result.metrics and result.bounds.get(bound):
            _equal(result.metrics, name, result.metrics["makespan_ns"] / result.bounds[bound], found)
    _equal(result.metrics, "avoidable_share", _avoidable({**result.metrics, **result.bounds}), found)


def footprint(spec: Mapping[str, Any], given: Trace, found: Findings) -> None:
    """The result's footprint, if it has one, is that of the experiment's program."""
    most = most_alive(given, given.size)
    if spec.get("footprint", most) != most:
        found.say(-1, f"the result's footprint is {spec['footprint']}", f"{most} bytes, what the program has alive at once")


def _equal(numbers: Mapping[str, int | float], name: str, value: float, found: Findings) -> None:
    if name in numbers:
        found.count("bounds and ratios", 1)
        if abs(numbers[name] - value) > NEAR * abs(value):
            found.say(-1, f"{name} is {numbers[name]}", f"{value}, recomputed")


def _avoidable(n: Mapping[str, int | float]) -> float:
    """Share of what was reserved that better placement would not need; where something left, all that was asked is needed."""
    left = n.get("swap_outs", 0) or n.get("clean_drops", 0)
    least = n.get("requested_peak_bytes", 0) if left else n.get("bound_plan_bytes", n.get("bound_live_bytes", 0))
    held = n.get("reserved_peak_bytes", 0)
    return max(0.0, 1 - least / held) if held else 0.0


def most_alive(trace: Trace, size: I64) -> int:
    """Bytes alive at once, at most, each tensor rounded up."""
    rounded = -(-size // GRANULE) * GRANULE
    tensor = np.isin(trace.kind, (ALLOC, FREE))
    change = np.where(trace.kind == ALLOC, 1, -1)[tensor] * rounded[trace.arg[tensor]]
    return int(np.cumsum(change).max(initial=0))


def least_in(trace: Trace, size: I64, duration: I64, capacity: int) -> int:
    """Bytes that have to come back under any policy: each is a page of its own, and the one used farthest ahead leaves
    (Belady 1966); the tensors of an operator are there together."""
    starts = np.concatenate([[0.0], np.cumsum(duration[:-1].astype(np.float64))]) if len(duration) else np.zeros(0)
    uses = trace.read_start, trace.read_id, trace.write_start, trace.write_id
    following = _next_uses(*uses, starts, trace.tensors)
    return int(_belady(trace.kind.astype(np.int64), trace.arg, size, uses, following, starts, capacity))


@kept()
def _next_uses(read_start: Any, read_id: Any, write_start: Any, write_id: Any, starts: Any, tensors: int) -> Any:
    """When each read, and each write, is followed by the next use of its tensor; its first use; whether that reads."""
    use = np.full(tensors, np.inf)
    reads = np.zeros(tensors, np.uint8)
    read_next, write_next = np.empty(read_id.size), np.empty(write_id.size)
    for o in range(starts.size - 1, -1, -1):
        for i in range(read_start[o], read_start[o + 1]):
            read_next[i] = use[read_id[i]]
        for i in range(write_start[o], write_start[o + 1]):
            write_next[i] = use[write_id[i]]
        for i in range(write_start[o], write_start[o + 1]):
            use[write_id[i]] = starts[o]
            reads[write_id[i]] = 0
        for i in range(read_start[o], read_start[o + 1]):
            use[read_id[i]] = starts[o]
            reads[read_id[i]] = 1
    return read_next, write_next, use, reads


@kept()
def _belady(kind: Any, arg: Any, size: Any, uses: Any, following: Any, starts: Any, capacity: int) -> int:
    read_start, read_id, write_start, write_id = uses
    read_next, write_next, first, reads = following
    there = np.zeros(size.size, np.int64)
    known = np.zeros(size.size, np.uint8)   # has been there with data
    due = np.full(size.size, np.inf)
    user = np.full(size.size, -1)
    far = [(0.0, -1)]
    apart = [(0.0, -1)]
    used, brought = 0, 0
    for e in range(kind.size):
        op = -1
        if kind[e] == FREE:
            used -= there[arg[e]]
            there[arg[e]] = 0
            due[arg[e]] = -1.0
            continue
        if kind[e] == ALLOC and reads[arg[e]]:
            u = arg[e]
            there[u], known[u], due[u] = size[u], 1, first[u]
            used += size[u]
            heapq.heappush(far, (-due[u], u))
        elif kind[e] == OP:
            op = arg[e]
            for side in range(2):
                lo, hi = read_start[op], read_start[op + 1]
                if side:
                    lo, hi = write_start[op], write_start[op + 1]
                for i in range(lo, hi):
                    u, after = 0, 0.0
                    if side:
                        u, after = write_id[i], write_next[i]
                    else:
                        u, after = read_id[i], read_next[i]
                    if known[u]:
                        brought += size[u] - there[u]
                    used += size[u] - there[u]
                    there[u], known[u], due[u], user[u] = size[u], 1, after, op
                    heapq.heappush(far, (-after, u))
        while used > capacity and len(far) > 0:
            key, u = far[0]
            if u < 0 or there[u] == 0 or due[u] != -key:
                heapq.heappop(far)
            elif op >= 0 and user[u] == op:
                apart.append(heapq.heappop(far))
            else:
                leaves = min(there[u], used - capacity)
                there[u] -= leaves
                used -= leaves
                if there[u] == 0:
                    heapq.heappop(far)
        while len(apart) > 0:
            heapq.heappush(far, apart.pop())
    return brought
