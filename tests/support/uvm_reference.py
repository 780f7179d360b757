"""The driver's rules once more, as plainly as Python allows: sets of pages, one warp after the other.

For whole blocks, one GPU, kernels of gathers, memory that the host has filled, replay after each batch and flush.  It is what
the compiled model is compared with, fault by fault, and timed against.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from math import gcd

PER_BLOCK = 512
SCHEDULERS = 4


def region(page: int, at: set[int], threshold: int) -> range:
    """The largest node of the tree above a page of which more than `threshold` percent is in `at`."""
    best = range(0)
    size = 1
    while size <= PER_BLOCK:
        first = page // size * size
        node = range(first, first + size)
        if sum(p in at for p in node) * 100 > size * threshold:
            best = node
        size *= 2
    return best


def prefetch(faulted: set[int], resident: set[int], threshold: int) -> set[int]:
    at = resident | faulted
    for page in faulted:
        at |= set(range(page // 16 * 16, page // 16 * 16 + 16))
    out: set[int] = set()
    for page in faulted:
        out |= set(region(page, at, threshold))
    return out - faulted


def one_of_each(pages: Sequence[int]) -> list[int]:
    return [page for page, _ in groupby(pages)]


@dataclass
class Warp:
    cta: int
    lanes: list[int]         # the pages of its lanes; neighbours that touch the same are one
    writes: list[bool]       # of each access
    access: int = 0
    lane: int = 0
    pending: int = 0
    asleep: bool = False


class Utlb:
    def __init__(self) -> None:
        self.queue: deque[Warp] = deque()
        self.outstanding: list[tuple[int, Warp, int]] = []  # pages, which warp waits, and the place in the order of reports
        self.place = 0
        self.left: dict[int, int] = {}


class Reference:
    def __init__(
        self, blocks: int, chunks: int, sms: int, warps: int,
        limit: int = 56, batch: int = 256, threshold: int = 51, gpcs: int = 1,
    ) -> None:  # fmt: skip
        self.cpu = set(range(blocks * PER_BLOCK))
        self.gpu: dict[int, set[int]] = {b: set() for b in range(blocks)}
        self.chunks: OrderedDict[int, None] = OrderedDict()
        self.capacity, self.limit, self.batch, self.threshold, self.warps = chunks, limit, batch, threshold, warps
        self.utlbs = [Utlb() for _ in range(sms)]
        self.gpcs, self.gpc, self.last, self.before, self.replays = gpcs, 0, 0, 0, 0
        self.stride = min((k for k in range(1, sms + 1) if gcd(k, sms) == 1), key=lambda k: abs(k - 0.618 * sms))
        self.batches = self.fetched = self.duplicates = self.faults = self.touches = 0
        self.log: list[tuple[str, int, frozenset[int]]] = []

    def mapped(self, page: int) -> bool:
        return page % PER_BLOCK in self.gpu[page // PER_BLOCK]

    def serve(self, b: int, faulted: set[int]) -> None:
        move = (faulted | prefetch(faulted, self.gpu[b], self.threshold)) - self.gpu[b]
        self.log.append(("fault", b, frozenset(faulted)))
        if b not in self.chunks and len(self.chunks) == self.capacity:
            victim, _ = self.chunks.popitem(last=False)
            self.log.append(("gone", victim, frozenset(self.gpu[victim])))
            self.cpu |= {victim * PER_BLOCK + p for p in self.gpu[victim]}
            self.gpu[victim] = set()
        self.chunks[b] = None
        self.chunks.move_to_end(b)
        self.cpu -= {b * PER_BLOCK + p for p in move}
        self.gpu[b] |= move
        self.faults += len(faulted)
        self.log.append(("copy", b, frozenset(move)))

    def issue(self, u: Utlb, warp: Warp) -> bool:
        while warp.lane < len(warp.lanes):
            page = warp.lanes[warp.lane]
            if self.mapped(page):
                self.touches += 1
            else:
                pages = {p for p, _, _ in u.outstanding}
                if len(u.outstanding) == 8 * self.limit or len(pages | {page}) > self.limit:
                    return False
                u.place = max(u.place, self.before) + 1
                self.last = max(self.last, u.place)
                u.outstanding.append((page, warp, u.place))
                warp.pending += 1
            warp.lane += 1
        return True

    def go_on(self, u: Utlb, warp: Warp, woken: bool = False) -> None:
        if warp.access < len(warp.writes):
            (u.queue.append if woken else u.queue.appendleft)(warp)
            return
        u.left[warp.cta] -= 1
        if u.left[warp.cta] == 0 and self.ctas:
            self.start(u)

    def start(self, u: Utlb) -> None:
        """The four schedulers of an SM issue at once: which of their warps comes first differs from SM to SM."""
        number, warps = self.ctas.popleft()
        u.left[number] = len(warps)
        for first in range(0, len(warps), SCHEDULERS):
            together = warps[first : first + SCHEDULERS]
            turned = self.utlbs.index(u) % len(together)
            u.queue.extend(together[turned:] + together[:turned])

    def advance(self) -> None:
        moved = True
        while moved:
            moved = False
            for u in self.utlbs:
                if u.queue and self.issue(u, u.queue[0]):
                    warp = u.queue.popleft()
                    warp.lane = 0
                    warp.access += 1
                    last = warp.access == len(warp.writes)
                    if warp.pending and (last or warp.writes[warp.access]):
                        warp.asleep = True
                    else:
                        self.go_on(u, warp)
                    moved = True

    def fetch(self) -> list[int]:
        """One access of each GPC in turn, the one of its uTLBs that has the first place."""
        out: list[int] = []
        n = len(self.utlbs)
        waiting = [
            sorted((place, u, k) for u in range(g * n // self.gpcs, (g + 1) * n // self.gpcs)
                   for k, (_, _, place) in enumerate(self.utlbs[u].outstanding))
            for g in range(self.gpcs)
        ]  # fmt: skip
        while len(out) < self.batch and any(waiting):
            if waiting[self.gpc]:
                _, u, k = waiting[self.gpc].pop(0)
                out.append(self.utlbs[u].outstanding[k][0])
            self.gpc = (self.gpc + 1) % self.gpcs
        return out

    def replay(self) -> None:
        """uTLBs begin one after the other, in an order of each replay, those of which nothing goes through first."""
        self.replays += 1
        n, begin = len(self.utlbs), self.last + 1
        behind = 8 * self.limit + 32
        self.last = self.before = self.last + 2 * behind
        for number, u in enumerate(self.utlbs):
            waiting, u.outstanding = u.outstanding, []
            first = begin + 32 * ((number * self.stride + self.replays * 40_503) % n) // n
            first += behind if any(self.mapped(page) for page, _, _ in waiting) else 0
            for page, warp, _ in waiting:
                if not self.mapped(page):
                    u.outstanding.append((page, warp, first + len(u.outstanding)))
                    continue
                self.touches += 1
                warp.pending -= 1
                if warp.pending == 0 and warp.asleep:
                    warp.asleep = False
                    self.go_on(u, warp, woken=True)

    def run(self, pages: Sequence[int], block: int, writes: list[bool]) -> None:
        """A kernel in which thread t touches pages[t], once for each of `writes`."""
        self.ctas = deque(
            (k // block, [Warp(k // block, one_of_each(pages[w : min(w + 32, k + block)]), writes)
                          for w in range(k, min(k + block, len(pages)), 32)])
            for k in range(0, len(pages), block)
        )  # fmt: skip
        self.before = self.last
        for _ in range(self.warps // (block // 32)):
            for u in self.utlbs:
                if self.ctas:
                    self.start(u)
        self.advance()
        while any(u.outstanding for u in self.utlbs):
            batch = self.fetch()
            self.batches += 1
            self.fetched += len(batch)
            unique = sorted(set(batch))
            self.duplicates += len(batch) - len(unique)
            for b in sorted({p // PER_BLOCK for p in unique}):
                faulted = {p % PER_BLOCK for p in unique if p // PER_BLOCK == b} - self.gpu[b]
                if faulted:
                    self.serve(b, faulted)
            self.replay()
            self.advance()
