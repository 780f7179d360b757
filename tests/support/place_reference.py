"""Slow, clear allocators: sorted lists of intervals, to compare the compiled ones with."""

from __future__ import annotations

from gmlake_reference import Segment


class Intervals:
    """First, next, best and worst fit over [0, capacity): `live` maps a unit to (address, size)."""

    def __init__(self, kind: str, capacity: int, align: int = 512, min_rest: int = 512) -> None:
        self.kind, self.capacity, self.align, self.min_rest = kind, capacity, align, min_rest
        self.live: dict[int, tuple[int, int]] = {}
        self.rover = 0

    def free_blocks(self) -> list[tuple[int, int]]:
        """(address, size) by address; the last one is the end of the memory."""
        found, at = [], 0
        for addr, size in sorted(self.live.values()):
            if addr > at:
                found.append((at, addr - at))
            at = addr + size
        return [*found, (at, self.capacity - at)]

    def choose(self, need: int) -> tuple[int, int] | None:
        blocks = [b for b in self.free_blocks() if b[1] >= need]
        if not blocks:
            return None
        if self.kind == "best_fit":
            return min(blocks, key=lambda b: (b[1], b[0]))
        if self.kind == "worst_fit":
            return max(blocks, key=lambda b: (b[1], -b[0]))
        if self.kind == "next_fit":
            return next((b for b in blocks if b[0] >= self.rover), blocks[0])
        return blocks[0]

    def alloc(self, unit: int, size: int) -> int:
        if size == 0:
            return 0
        need = -(-size // self.align) * self.align
        block = self.choose(need)
        if block is None:
            return -1
        addr, room = block
        at_end = block == self.free_blocks()[-1]
        size = need if at_end or room - need >= self.min_rest else room
        self.live[unit] = addr, size
        self.rover = addr + size
        return addr

    def free(self, unit: int) -> None:
        self.live.pop(unit, None)
        for addr, size in self.free_blocks():
            if addr < self.rover < addr + size:
                self.rover = addr


class Buddies:
    """Binary buddies: `spare` holds the free blocks as (size, address)."""

    def __init__(self, capacity: int, smallest: int = 512) -> None:
        self.capacity, self.smallest = capacity, smallest
        root = smallest
        while root < capacity:
            root *= 2
        self.root = root
        self.spare = {(root, 0)}
        self.live: dict[int, tuple[int, int]] = {}

    def alloc(self, unit: int, size: int) -> int:
        if size == 0:
            return 0
        need = self.smallest
        while need < size:
            need *= 2
        able = [b for b in self.spare if b[0] >= need and b[1] + need <= self.capacity]
        if not able:
            return -1
        block = min(able)
        self.spare.remove(block)
        size, addr = block
        while size > need:
            size //= 2
            self.spare.add((size, addr + size))
        self.live[unit] = addr, size
        return addr

    def free(self, unit: int) -> None:
        if unit not in self.live:
            return
        addr, size = self.live.pop(unit)
        while (size, addr ^ size) in self.spare:
            self.spare.remove((size, addr ^ size))
            addr, size = addr & ~size, 2 * size
        self.spare.add((size, addr))


class Classes(Intervals):
    """TLSF: `order` counts when a free block was last put into its list."""

    def __init__(self, capacity: int) -> None:
        super().__init__("tlsf", capacity)
        self.clock = 0
        self.stamp: dict[tuple[int, int], int] = {}

    @staticmethod
    def class_of(size: int, up: bool = False) -> tuple[int, int]:
        f = size.bit_length() - 1
        step = max(1, 2**f // 32)
        if up and size % step:
            return Classes.class_of((size // step + 1) * step)
        return f, (size - 2**f) // step

    def note(self) -> None:
        """Blocks that are new since the last call were put in now, at the head of their list."""
        inner = self.free_blocks()[:-1]
        self.stamp = {b: s for b, s in self.stamp.items() if b in inner}
        self.clock += 1
        for b in inner:
            self.stamp.setdefault(b, self.clock)

    def choose(self, need: int) -> tuple[int, int] | None:
        *inner, end = self.free_blocks()
        wanted = self.class_of(need, up=True)
        able = [b for b in inner if self.class_of(b[1]) >= wanted]
        best = min(able, key=lambda b: (self.class_of(b[1]), -self.stamp[b])) if able else None
        if end[1] >= need and self.class_of(end[1]) >= wanted and (
            best is None or self.class_of(end[1]) < self.class_of(best[1])
        ):
            return end
        return best

    def alloc(self, unit: int, size: int) -> int:
        addr = super().alloc(unit, size)
        self.note()
        return addr

    def free(self, unit: int) -> None:
        super().free(unit)
        self.note()


class Pages:
    """Whole pages: best fit among the empty ones that are held, else a new segment at the lowest address, by bytes."""

    def __init__(self, capacity: int, page: int) -> None:
        self.capacity, self.page = capacity, page
        self.segments: list[Segment] = []
        self.live: dict[int, tuple[int, int]] = {}
        self.home: dict[int, tuple[Segment, int]] = {}

    @property
    def held(self) -> int:
        return sum(s.size for s in self.segments)

    def take(self, size: int) -> bool:
        if self.held + size > self.capacity:
            return False
        at = 0
        for other in sorted(self.segments, key=lambda s: s.addr):
            if other.addr - at >= size:
                break
            at = other.addr + other.size
        self.segments.append(Segment(at, self.page, 0, [None] * (size // self.page)))
        return True

    def release(self) -> None:
        """Every empty page goes, by itself; what is left of a segment are segments."""
        left: list[Segment] = []
        for s in self.segments:
            start = 0
            for first, count in [*s.runs(), (len(s.user), 0)]:
                if first > start:
                    left.append(Segment(s.addr + start * self.page, self.page, 0, s.user[start:first]))
                start = first + count
        self.segments = left
        for new in left:
            for i, unit in enumerate(new.user):
                if unit is not None and (i == 0 or new.user[i - 1] != unit):
                    self.home[unit] = new, i

    def alloc(self, unit: int, size: int) -> int:
        need = -(-size // self.page)
        for attempt in range(3):
            able = [(n, s.addr + first * self.page, s, first) for s in self.segments for first, n in s.runs() if n >= need]
            if able:
                _, addr, segment, first = min(able, key=lambda c: c[:2])
                segment.user[first : first + need] = [unit] * need
                self.live[unit] = addr, need * self.page
                self.home[unit] = segment, first
                return addr
            if not self.take(need * self.page) and attempt == 0:
                self.release()
        return -1

    def free(self, unit: int) -> None:
        if unit in self.live:
            _, size = self.live.pop(unit)
            segment, first = self.home.pop(unit)
            segment.user[first : first + size // self.page] = [None] * (size // self.page)


class Slabs:
    """Size classes: of a slab `free` are the slots, the next one last; the last of `slabs` of a class serves first."""

    def __init__(self, capacity: int, steps: int = 8, page: int = 2 << 20, smallest: int = 512) -> None:
        self.pages = Pages(capacity, page)
        self.steps, self.page, self.smallest = steps, page, smallest
        self.slabs: list[dict] = []
        self.live: dict[int, tuple[int, int]] = {}
        self.home: dict[int, dict] = {}
        self.names = 0

    def alloc(self, unit: int, size: int) -> int:
        if size == 0:
            return 0
        if size > self.page:
            addr = self.pages.alloc(unit, size)
            if addr >= 0:
                self.live[unit] = self.pages.live[unit]
            return addr
        size = max(size, self.smallest)
        step = max(self.smallest, 2 ** (size.bit_length() - 1) // self.steps)
        size = -(-size // step) * step
        slab = next((s for s in reversed(self.slabs) if s["class"] == size), None)
        if slab is None:
            self.names -= 1
            addr = self.pages.alloc(self.names, 8 * size)
            if addr < 0:
                return -1
            slots = min(4096, self.pages.live[self.names][1] // size)
            slab = {"class": size, "addr": addr, "name": self.names, "slots": slots, "free": list(range(slots))[::-1]}
            self.slabs.append(slab)
        slot = slab["free"].pop()
        if not slab["free"]:
            self.slabs.remove(slab)
        self.home[unit] = slab
        self.live[unit] = slab["addr"] + slot * size, size
        return self.live[unit][0]

    def free(self, unit: int) -> None:
        if unit not in self.live:
            return
        addr, size = self.live.pop(unit)
        slab = self.home.pop(unit, None)
        if slab is None:
            self.pages.free(unit)
            return
        if not slab["free"]:
            self.slabs.append(slab)
        slab["free"].append((addr - slab["addr"]) // size)
        if len(slab["free"]) == slab["slots"]:
            self.slabs.remove(slab)
            self.pages.free(slab["name"])
