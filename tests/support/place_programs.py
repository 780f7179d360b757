"""Random programs of allocs and frees, run on a place policy with everything about the contract watched."""

from __future__ import annotations

import random
from typing import Any

import numpy as np

from gpusim.policies.contract import BLOCK, CALL_LIST, CALLS, CAPACITY, HELD, MAX_CALLS, ROUNDED

Op = tuple[int, int, int]  # unit, bytes (-1 frees), stream


def program(seed: int, length: int, units: int, scale: int, streams: int = 1) -> list[Op]:
    """Units are free when they are allocated and in use when they are freed; sizes up to about scale * 16 KiB."""
    rng = random.Random(seed)
    live: set[int] = set()
    ops: list[Op] = []
    frees = rng.choice([0.4, 0.5, 0.55])
    while len(ops) < length:
        if live and (rng.random() < frees or len(live) == units):
            unit = rng.choice(sorted(live))
            live.remove(unit)
            ops.append((unit, -1, 0))
        else:
            unit = rng.choice([u for u in range(units) if u not in live])
            live.add(unit)
            size = scale * rng.choice([0, 1, 512, 513, 1024, 4096, rng.randrange(1, 20000), int(2 ** rng.uniform(6, 16))])
            ops.append((unit, size, rng.randrange(streams)))
    return ops


class Watched:
    """A policy's table, and what must be true of it after every verb."""

    def __init__(self, policy: Any, capacity: int, units: int) -> None:
        self.policy = policy
        table = policy.state(capacity, units, units, policy.params)
        assert table.dtype == np.int64
        self.whole = np.full(len(table) + 64, -77)  # a kernel that leaves its table would write here
        self.S = self.whole[: len(table)]
        self.S[:] = table
        self.live: dict[int, tuple[int, int]] = {}
        self.held: list[tuple[int, int]] = []  # disjoint ranges [start, end)
        self.refused = 0

    def alloc(self, unit: int, size: int, stream: int = 0) -> int:
        before = int(self.S[HELD])
        addr = int(self.policy.alloc(self.S, unit, size, stream))
        if addr < 0:
            assert addr == -1
            self.refused += 1
        elif size == 0:
            assert self.S[BLOCK] == 0
        else:
            block = int(self.S[BLOCK])
            assert block >= size
            for other, length in self.live.values():
                assert addr + block <= other or other + length <= addr, "two live blocks overlap"
            self.live[unit] = addr, block
        self.check(before)
        return addr

    def free(self, unit: int) -> None:
        before = int(self.S[HELD])
        self.policy.free(self.S, unit, 0)
        self.live.pop(unit, None)
        self.check(before)

    def release(self, wanted: int = 2**62) -> int:
        before = int(self.S[HELD])
        back = int(self.policy.release(self.S, wanted))
        assert back == before - self.S[HELD] >= 0
        self.check(before)
        return back

    def run(self, ops: list[Op]) -> list[tuple[int, int]]:
        """(address, block) of every alloc; frees of units that were refused are passed on, and must do nothing."""
        found = []
        for unit, size, stream in ops:
            if size < 0:
                self.free(unit)
            else:
                addr = self.alloc(unit, size, stream)
                found.append((addr, int(self.S[BLOCK]) if addr >= 0 else 0))
        return found

    def calls(self) -> list[tuple[int, int]]:
        at = int(self.S[CALL_LIST])
        return [(int(self.S[at + 2 * i]), int(self.S[at + 2 * i + 1])) for i in range(int(self.S[CALLS]))]

    def check(self, held_before: int) -> None:
        assert (self.whole[len(self.S) :] == -77).all(), "a verb wrote outside its table"
        calls = self.calls()
        assert len(calls) <= self.S[MAX_CALLS]
        assert held_before + sum(size for _, size in calls) == self.S[HELD]
        for addr, size in calls:
            self.held = add(self.held, addr, size) if size > 0 else take(self.held, addr, -size)
        assert sum(end - start for start, end in self.held) == self.S[HELD] <= self.S[CAPACITY]
        assert sum(size for _, size in self.live.values()) == self.S[ROUNDED]
        for addr, size in self.live.values():
            assert any(start <= addr and addr + size <= end for start, end in self.held), "a live block is not held"


def add(ranges: list[tuple[int, int]], addr: int, size: int) -> list[tuple[int, int]]:
    """Ranges with [addr, addr + size), which was not among them; touching ones become one."""
    assert all(addr + size <= start or end <= addr for start, end in ranges), "memory is taken that is held already"
    found: list[tuple[int, int]] = []
    for start, end in sorted([*ranges, (addr, addr + size)]):
        if found and found[-1][1] == start:
            start = found.pop()[0]
        found.append((start, end))
    return found


def take(ranges: list[tuple[int, int]], addr: int, size: int) -> list[tuple[int, int]]:
    """Ranges without [addr, addr + size), which was among them."""
    inside = [r for r in ranges if r[0] <= addr and addr + size <= r[1]]
    assert len(inside) == 1, "memory is given back that is not held"
    start, end = inside[0]
    rest = [r for r in ranges if r != inside[0]]
    return sorted([*rest, *(r for r in ((start, addr), (addr + size, end)) if r[0] < r[1])])
