"""The simplest simulator that keeps an honest log: one thing at a time, first fit, the least recently used tensor leaves.

It shares nothing with gpusim's engine; tests of the referee use its logs.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gpusim.results.log import COPY, CREATE, DESTROY, DROP, END, ISSUE, LOG, PLACE, START, UNPLACE
from gpusim.results.result import Result
from gpusim.trace.trace import ALLOC, FREE, OP, Trace

KERNEL_NS = 100


def run(trace: Trace, capacity: int) -> Result:
    """Times: a kernel takes 100 ns, a copy 1 ns per byte.  Tensors that nothing fits beside raise ValueError."""
    return _Serial(trace, capacity).result()


class _Serial:
    def __init__(self, trace: Trace, capacity: int) -> None:
        self.trace, self.capacity, self.now = trace, capacity, 0
        self.rows: list[tuple[int, ...]] = []
        self.blocks: dict[int, int] = {}  # tensor -> address, the least recently used first
        self.host: set[int] = set()
        self.written: set[int] = set()
        first_read = set()
        for op in range(trace.ops):
            reads, writes = self.accesses(op)
            first_read |= reads - self.written
            self.written |= reads | writes
        self.written = first_read  # what holds data from the start
        self.activities = 0
        self.peak = self.used = self.host_used = self.host_peak = 0
        self.total: dict[str, int] = dict.fromkeys(("in", "out", "drops", "busy", "placed", "h2d", "d2h"), 0)
        for kind, arg in zip(trace.kind.tolist(), trace.arg.tolist(), strict=True):
            if kind == ALLOC:
                self.log(CREATE, arg, 0, -1, self.size(arg))
                self.place(arg, {arg})
            elif kind == FREE:
                self.free(arg)
            elif kind == OP:
                self.operate(arg)

    def accesses(self, op: int) -> tuple[set[int], set[int]]:
        t = self.trace
        return (
            set(t.read_id[t.read_start[op] : t.read_start[op + 1]].tolist()),
            set(t.write_id[t.write_start[op] : t.write_start[op + 1]].tolist()),
        )

    def size(self, tensor: int) -> int:
        return int(self.trace.size[tensor])

    def log(self, kind: int, a: int, b: int, addr: int = -1, size: int = 0) -> None:
        self.rows.append((self.now, kind, a, b, addr, size))

    def activity(self, kind: int, arg: int, b: int, queue: int, size: int, duration: int) -> None:
        self.log(kind, arg, b, self.activities, size)
        self.log(START, self.activities, queue)
        self.now += duration
        self.log(END, self.activities, queue)
        self.activities += 1

    def place(self, tensor: int, keep: set[int]) -> None:
        size = self.size(tensor)
        if size == 0:
            return
        while (addr := self.hole(size)) is None:
            victim = next((t for t in self.blocks if t not in keep), None)
            if victim is None:
                raise ValueError("out of memory")
            self.evict(victim)
        self.blocks[tensor] = addr
        self.used += size
        self.peak = max(self.peak, self.used)
        self.total["placed"] += size
        self.log(PLACE, tensor, 0, addr, size)
        if tensor in self.host:
            self.activity(COPY, tensor, 1 << 8, -1, size, size)
            self.total["in"] += 1
            self.total["h2d"] += size

    def hole(self, size: int) -> int | None:
        end = 0
        for start, stop in sorted((a, a + self.size(t)) for t, a in self.blocks.items()):
            if start - end >= size:
                break
            end = stop
        return end if end + size <= self.capacity else None

    def evict(self, tensor: int) -> None:
        size = self.size(tensor)
        if tensor in self.host or tensor not in self.written:
            self.log(DROP, tensor, 0, self.blocks[tensor], size)
            self.total["drops"] += 1
        else:
            self.host.add(tensor)
            self.host_used += size
            self.host_peak = max(self.host_peak, self.host_used)
            self.log(PLACE, tensor, 1, -1, size)
            self.activity(COPY, tensor, 1, -2, size, size)
            self.total["out"] += 1
            self.total["d2h"] += size
        self.unplace(tensor)

    def unplace(self, tensor: int) -> None:
        self.log(UNPLACE, tensor, 0, self.blocks.pop(tensor), self.size(tensor))
        self.used -= self.size(tensor)

    def drop_host(self, tensor: int) -> None:
        if tensor in self.host:
            self.host.remove(tensor)
            self.host_used -= self.size(tensor)
            self.log(UNPLACE, tensor, 1, -1, self.size(tensor))

    def free(self, tensor: int) -> None:
        if tensor in self.blocks:
            self.unplace(tensor)
        self.drop_host(tensor)
        self.log(DESTROY, tensor, 0, -1, self.size(tensor))

    def operate(self, op: int) -> None:
        reads, writes = self.accesses(op)
        for tensor in sorted(reads | writes):
            if tensor not in self.blocks:
                self.place(tensor, reads | writes)
            elif tensor in self.blocks:
                self.blocks[tensor] = self.blocks.pop(tensor)
        for tensor in sorted(writes):
            self.drop_host(tensor)
        self.written |= writes
        self.activity(ISSUE, op, 0, 0, 0, KERNEL_NS)
        self.total["busy"] += KERNEL_NS

    def result(self) -> Result:
        t = self.total
        metrics: dict[str, Any] = {
            "makespan_ns": self.now, "compute_busy_ns": t["busy"], "kernels": self.trace.ops, "swap_ins": t["in"],
            "swap_outs": t["out"], "clean_drops": t["drops"], "h2d_bytes": t["h2d"], "d2h_bytes": t["d2h"],
            "allocated_peak_bytes": self.peak, "requested_peak_bytes": self.peak, "host_peak_bytes": self.host_peak,
            "allocated_total_bytes": t["placed"], "allocated_current_bytes": self.used,
        }  # fmt: skip
        spec = {"capacity": self.capacity, "rates": {"h2d": 1e9, "d2h": 1e9}}
        return Result(spec, "finished", metrics, log=np.array(self.rows, LOG))
