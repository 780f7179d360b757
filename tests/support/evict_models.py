"""Eviction policies written as slowly and clearly as their papers: what the compiled ones must agree with."""

from __future__ import annotations

from collections import OrderedDict


class Lru:
    def __init__(self, capacity: int) -> None:
        self.order: OrderedDict[int, int] = OrderedDict()  # oldest access first

    def insert(self, unit: int, size: int) -> None:
        self.order[unit] = size

    def touch(self, unit: int, size: int) -> None:
        self.order.move_to_end(unit)

    def remove(self, unit: int, evicted: bool) -> None:
        self.order.pop(unit, None)

    def victim(self, incoming: int, size: int) -> int:
        return next(iter(self.order), -1)


class Fifo(Lru):
    def touch(self, unit: int, size: int) -> None:
        pass


class Clock(Lru):
    def __init__(self, capacity: int) -> None:
        super().__init__(capacity)
        self.used: set[int] = set()

    def insert(self, unit: int, size: int) -> None:
        super().insert(unit, size)
        self.used.discard(unit)

    def touch(self, unit: int, size: int) -> None:
        self.used.add(unit)

    def victim(self, incoming: int, size: int) -> int:
        while self.order:
            unit = next(iter(self.order))
            if unit not in self.used:
                return unit
            self.used.discard(unit)
            self.order.move_to_end(unit)
        return -1


class Sieve:
    def __init__(self, capacity: int) -> None:
        self.queue: list[int] = []  # oldest first
        self.used: set[int] = set()
        self.hand: int | None = None  # a unit

    def insert(self, unit: int, size: int) -> None:
        self.queue.append(unit)
        self.used.discard(unit)

    def touch(self, unit: int, size: int) -> None:
        self.used.add(unit)

    def remove(self, unit: int, evicted: bool) -> None:
        if unit not in self.queue:
            return
        if self.hand == unit:
            self.hand = self._newer(unit)
        self.queue.remove(unit)

    def _newer(self, unit: int) -> int | None:
        i = self.queue.index(unit) + 1
        return self.queue[i] if i < len(self.queue) else None

    def victim(self, incoming: int, size: int) -> int:
        if not self.queue:
            return -1
        unit = self.queue[0] if self.hand is None else self.hand
        while unit in self.used:
            self.used.discard(unit)
            newer = self._newer(unit)
            unit = self.queue[0] if newer is None else newer
        self.hand = unit
        self.hand = self._newer(unit)
        return unit


class Lfu:
    def __init__(self, capacity: int) -> None:
        self.count: dict[int, tuple[int, int]] = {}  # unit -> (accesses, when it reached them)
        self.clock = 0

    def insert(self, unit: int, size: int) -> None:
        self.clock += 1
        self.count[unit] = (1, self.clock)

    def touch(self, unit: int, size: int) -> None:
        self.clock += 1
        self.count[unit] = (self.count[unit][0] + 1, self.clock)

    def remove(self, unit: int, evicted: bool) -> None:
        self.count.pop(unit, None)

    def victim(self, incoming: int, size: int) -> int:
        return min(self.count, key=lambda u: self.count[u], default=-1)


class S3Fifo:
    """Yang et al., SOSP 2023, with libCacheSim's rule for units that find the small queue full before any eviction."""

    def __init__(self, capacity: int) -> None:
        self.small_cap, self.ghost_cap = int(capacity * 0.1), int(capacity * 0.9)
        self.main_cap = capacity - self.small_cap
        self.small: OrderedDict[int, int] = OrderedDict()
        self.main: OrderedDict[int, int] = OrderedDict()
        self.ghost: OrderedDict[int, int] = OrderedDict()
        self.count: dict[int, int] = {}
        self.returns = -1
        self.evicted = False

    def insert(self, unit: int, size: int) -> None:
        known = self.ghost.pop(unit, None) is not None or self.returns == unit
        self.returns = -1
        self.count[unit] = 0
        full = not self.evicted and sum(self.small.values()) >= self.small_cap
        (self.main if known or full or size >= self.small_cap else self.small)[unit] = size

    def touch(self, unit: int, size: int) -> None:
        self.count[unit] = min(self.count[unit] + 1, 3)

    def remove(self, unit: int, evicted: bool) -> None:
        self.ghost.pop(unit, None)
        self.main.pop(unit, None)
        size = self.small.pop(unit, None)
        if evicted and size is not None and size <= self.ghost_cap:
            while sum(self.ghost.values()) + size > self.ghost_cap:
                self.ghost.popitem(last=False)
            self.ghost[unit] = size

    def victim(self, incoming: int, size: int) -> int:
        self.evicted = True
        if self.ghost.pop(incoming, None) is not None:
            self.returns = incoming
        if sum(self.main.values()) <= self.main_cap:
            while self.small:
                unit = next(iter(self.small))
                if self.count[unit] < 2:
                    return unit
                self.main[unit] = self.small.pop(unit)
                self.count[unit] = 0
        while self.main:
            unit = next(iter(self.main))
            if self.count[unit] == 0:
                return unit
            self.count[unit] -= 1
            self.main.move_to_end(unit)
        return next(iter(self.small), -1)


class Arc:
    """Megiddo and Modha, FAST 2003, in bytes."""

    def __init__(self, capacity: int) -> None:
        self.c, self.p = capacity, 0.0
        self.t1: OrderedDict[int, int] = OrderedDict()  # least recent first, unit -> size
        self.t2: OrderedDict[int, int] = OrderedDict()
        self.b1: OrderedDict[int, int] = OrderedDict()
        self.b2: OrderedDict[int, int] = OrderedDict()
        self.returns, self.ghost_of, self.no_ghost = -1, 0, -1

    def _sizes(self) -> tuple[int, int, int, int]:
        t1, t2, b1, b2 = (sum(q.values()) for q in (self.t1, self.t2, self.b1, self.b2))
        return t1, t2, b1, b2

    def _adapt(self, unit: int) -> None:
        _, _, b1, b2 = self._sizes()
        if unit in self.b1:
            self.p = min(self.p + max(b2 / b1, 1.0) * self.b1.pop(unit), self.c)
            self.ghost_of = 1
        else:
            self.p = max(self.p - max(b1 / b2, 1.0) * self.b2.pop(unit), 0.0)
            self.ghost_of = 2
        self.returns = unit

    def _trim(self, size: int) -> None:
        while self.b1 and sum(self.t1.values()) + sum(self.b1.values()) + size > self.c:
            self.b1.popitem(last=False)
        while self.b2 and sum(self.t1.values()) + size <= self.c and sum(self._sizes()) + size > 2 * self.c:
            self.b2.popitem(last=False)

    def insert(self, unit: int, size: int) -> None:
        if unit in self.b1 or unit in self.b2:
            self._adapt(unit)
        if self.returns != unit:
            self._trim(size)
        (self.t2 if self.returns == unit else self.t1)[unit] = size
        self.returns = -1

    def touch(self, unit: int, size: int) -> None:
        self.t1.pop(unit, None)
        self.t2.pop(unit, None)
        self.t2[unit] = size

    def remove(self, unit: int, evicted: bool) -> None:
        for resident, ghosts in ((self.t1, self.b1), (self.t2, self.b2)):
            if unit in resident:
                size = resident.pop(unit)
                if evicted and self.no_ghost != unit:
                    ghosts[unit] = size
                self.no_ghost = -1
            elif unit in ghosts:
                del ghosts[unit]

    def victim(self, incoming: int, size: int) -> int:
        if incoming in self.b1 or incoming in self.b2:
            self._adapt(incoming)
        returns = self.returns == incoming
        t1, t2, _, _ = self._sizes()
        self.no_ghost = -1
        if not returns:
            self._trim(size)
            if t1 + size > self.c:
                self.no_ghost = next(iter(self.t1), -1)
                return self.no_ghost if self.t1 else next(iter(self.t2), -1)
        from_t1 = t1 > self.p or (t1 == self.p and returns and self.ghost_of == 2)
        order = (self.t1, self.t2) if (t1 > 0 and from_t1) or t2 == 0 else (self.t2, self.t1)
        return next((unit for queue in order for unit in queue), -1)


MODELS = {"lru": Lru, "fifo": Fifo, "clock": Clock, "sieve": Sieve, "lfu": Lfu, "s3fifo": S3Fifo, "arc": Arc}
