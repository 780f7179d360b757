"""GMLake as slow and clear as can be: every piece of memory knows its users, free chunks are runs of unused pieces.

A segment of the large pool is a row of 2 MiB pieces, one of the small pool of 512-byte pieces.  A stitch is a list of pieces,
each named by (segment, number).  `take` refuses to hand out a piece that is in use: no memory is ever two tensors'.
"""

from __future__ import annotations

from dataclasses import dataclass, field

MIB = 1 << 20
VIRTUAL = 1 << 42


@dataclass(eq=False)
class Segment:
    addr: int
    piece: int
    stream: int
    user: list[int | None]

    @property
    def size(self) -> int:
        return self.piece * len(self.user)

    def runs(self) -> list[tuple[int, int]]:
        """(first, count) of the runs of unused pieces."""
        found, at = [], 0
        while at < len(self.user):
            end = at
            while end < len(self.user) and self.user[end] is None:
                end += 1
            if end > at:
                found.append((at, end - at))
            at = end + 1
        return found


@dataclass(eq=False)
class Stitch:
    addr: int
    stream: int
    pieces: list[tuple[Segment, int]]
    user: int | None = None
    broken: bool = False

    @property
    def size(self) -> int:
        return 2 * MIB * len(self.pieces)


@dataclass
class Gmlake:
    capacity: int
    frag_limit: int = 512 * MIB
    reuse_limit: float = 10.0
    level: int = 0
    auto_gc: int = 1000
    segments: list[Segment] = field(default_factory=list)
    stitches: list[Stitch] = field(default_factory=list)
    stitched: int = 0
    live: dict[int, tuple[int, int, list[tuple[Segment, int]]]] = field(default_factory=dict)  # address, block, pieces
    made: int = 0
    reused: int = 0

    @property
    def held(self) -> int:
        return sum(s.size for s in self.segments)

    def chunks(self, stream: int, piece: int) -> list[tuple[int, int, Segment, int]]:
        """(size, address, segment, first piece) of the free chunks, in order."""
        found = [
            (count * piece, s.addr + first * piece, s, first)
            for s in self.segments if s.stream == stream and s.piece == piece for first, count in s.runs()
        ]  # fmt: skip
        return sorted(found, key=lambda c: c[:2])

    def take(self, unit: int, pieces: list[tuple[Segment, int]]) -> None:
        for segment, number in pieces:
            assert segment in self.segments, "memory that was given back is handed out"
            assert segment.user[number] is None, "memory is handed out twice"
            segment.user[number] = unit

    def alloc(self, unit: int, size: int, stream: int = 0) -> int:
        if size == 0:
            return 0
        small = size <= MIB
        piece = 512 if small else 2 * MIB
        need = -(-size // piece) * piece
        where = self.fit(need, stream, piece) or (None if small else self.reuse(need, stream))
        if where is None and not small and self.level <= 0:
            where = self.stitch(need, stream)
        where = where or self.segment(need, stream, piece)
        if where is None and not small and self.level <= 1:
            where = self.stitch(need, stream)
        if where is None:
            self.give_free_segments()
            where = self.segment(need, stream, piece) or (None if small else self.stitch(need, stream))
        if where is None:
            return -1
        addr, pieces, used_stitch = where
        self.take(unit, pieces)
        if used_stitch is not None:
            used_stitch.user = unit
        self.live[unit] = addr, need, pieces
        return addr

    def fit(self, need: int, stream: int, piece: int) -> tuple | None:
        found = next((c for c in self.chunks(stream, piece) if c[0] >= need), None)
        if found is None:
            return None
        _, addr, segment, first = found
        return addr, [(segment, first + i) for i in range(need // piece)], None

    def idle(self, stitch: Stitch) -> bool:
        return stitch.user is None and all(s.user[i] is None for s, i in stitch.pieces)

    def reuse(self, need: int, stream: int) -> tuple | None:
        able = [s for s in self.stitches if s.stream == stream and s.size >= need and self.idle(s)]
        found = min(able, key=lambda s: (s.size, s.addr), default=None)
        if found is None or found.size > need * self.reuse_limit:
            return None
        self.reused += 1
        return found.addr, found.pieces[: need // (2 * MIB)], found

    def stitch(self, need: int, stream: int) -> tuple | None:
        if need < self.frag_limit:
            return None
        pieces: list[tuple[Segment, int]] = []
        for size, _, segment, first in reversed(self.chunks(stream, 2 * MIB)):
            pieces += [(segment, first + i) for i in range(size // (2 * MIB))]
            if len(pieces) * 2 * MIB >= need:
                break
        if len(pieces) * 2 * MIB < need:
            return None
        at = VIRTUAL
        for other in sorted(self.stitches, key=lambda s: s.addr):
            if other.addr < at + need:
                at = other.addr + other.size
        new = Stitch(at, stream, pieces[: need // (2 * MIB)], user=-1)
        self.stitches.append(new)
        self.made += 1
        self.stitched += need
        if self.stitched > self.auto_gc << 30:
            self.drop_idle()
        return new.addr, list(new.pieces), new

    def drop_idle(self) -> None:
        self.stitched -= sum(s.size for s in self.stitches if s.user is None)
        self.stitches = [s for s in self.stitches if s.user is not None]

    def segment(self, need: int, stream: int, piece: int) -> tuple | None:
        size = 2 * MIB if piece == 512 else 20 * MIB if need < 10 * MIB else need
        if self.held + size > self.capacity:
            return None
        at = 0
        for other in sorted(self.segments, key=lambda s: s.addr):
            if other.addr - at >= size:
                break
            at = other.addr + other.size
        new = Segment(at, piece, stream, [None] * (size // piece))
        self.segments.append(new)
        return at, [(new, i) for i in range(need // piece)], None

    def give_free_segments(self) -> None:
        for segment in [s for s in self.segments if all(u is None for u in s.user)]:
            self.segments.remove(segment)
            for stitch in [t for t in self.stitches if any(s is segment for s, _ in t.pieces)]:
                if stitch.user is None:
                    self.stitches.remove(stitch)
                else:
                    stitch.broken = True

    def free(self, unit: int) -> None:
        if unit not in self.live:
            return
        for segment, number in self.live.pop(unit)[2]:
            assert segment.user[number] == unit
            segment.user[number] = None
        for stitch in self.stitches:
            if stitch.user == unit:
                stitch.user = None
        self.stitches = [s for s in self.stitches if not (s.broken and s.user is None)]

    def release(self) -> None:
        self.give_free_segments()
        self.drop_idle()
