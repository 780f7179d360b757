"""Random programs for PyTorch's allocator, by family of options; none does what makes the library itself abort."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

from pytorch_oracle import Command, Program

K, MIB = 512, 1 << 20
TOTAL = 2 << 30


class Writer:
    """A program in the making: what is live, which streams are held, which pools there are."""

    def __init__(self, rng: random.Random, streams: int, mean: int, top: float, one: bool) -> None:
        self.rng, self.streams, self.mean, self.top, self.one = rng, streams, mean, top, one
        self.commands: list[Command] = []
        self.live: list[int] = []
        self.ids = 0
        self.palette = [self.fresh() for _ in range(8)]

    def fresh(self) -> int:
        rng = self.rng
        return rng.choice([
            int(2 ** rng.uniform(0, self.top)), int(2 ** rng.uniform(8, 20)), int(2 ** rng.uniform(20, self.top)),
            rng.randrange(1, 2000), MIB * rng.randrange(1, 24), MIB * rng.randrange(1, 24) + rng.choice([-K, K, 1, -1]),
            K * rng.randrange(1, 64),
        ])  # fmt: skip

    def size(self) -> int:
        return self.rng.choice(self.palette) if self.rng.random() < 0.5 else self.fresh()

    def add(self, *command: object) -> None:
        self.commands.append(command)

    def alloc(self) -> int:
        size = self.size() if self.rng.random() > 0.005 else 0
        self.add("a", self.ids, size, self.rng.randrange(self.streams))
        self.live.append(self.ids)
        self.ids += 1
        return self.ids - 1

    def free(self) -> None:
        if self.live:
            at = self.rng.randrange(len(self.live))
            self.live[at], self.live[-1] = self.live[-1], self.live[at]
            self.add("f", self.live.pop())

    def other(self) -> int:
        """A stream to use a block on, or to hold."""
        return self.streams if self.one else self.rng.randrange(self.streams + 2)

    def step(self) -> None:
        """An alloc or a free, so that about `mean` blocks live; now and then many frees, or an empty_cache."""
        roll = self.rng.random()
        if roll < 0.004:
            for _ in range(len(self.live) * 3 // 4):
                self.free()
        elif roll < 0.012:
            self.add("e")
        elif self.rng.random() * 2 * self.mean < len(self.live):
            self.free()
        else:
            self.alloc()


Maker = Callable[[Writer, random.Random], Iterator[None]]


def _plain(w: Writer, rng: random.Random) -> Iterator[None]:
    while True:
        w.step()
        yield


def _capacity(w: Writer, rng: random.Random) -> Iterator[None]:
    while True:
        if rng.random() < 0.02:
            w.add("C", rng.choice([rng.randrange(1, 400) * MIB, TOTAL, 0, rng.randrange(TOTAL)]))
        w.step()
        yield


def _fraction(w: Writer, rng: random.Random) -> Iterator[None]:
    while True:
        if rng.random() < 0.02:
            w.add("F", rng.choice([1.0, round(rng.uniform(0, 0.3), 4), round(rng.uniform(0, 1), 3)]))
        if rng.random() < 0.005:
            w.add("C", rng.choice([rng.randrange(1, 400) * MIB, TOTAL]))
        w.step()
        yield


def _streams(w: Writer, rng: random.Random) -> Iterator[None]:
    held: set[int] = set()
    while True:
        roll = rng.random()
        if roll < 0.15 and w.live:
            w.add("r", rng.choice(w.live), w.other())
        elif roll < 0.17:
            stream = w.other()
            w.add("u" if stream in held else "h", stream)
            held ^= {stream}
        elif roll < 0.18:
            w.add("C", rng.choice([rng.randrange(50, 600) * MIB, TOTAL]))
        w.step()
        yield


def _pools(w: Writer, rng: random.Random) -> Iterator[None]:
    """Pools are begun, ended and released as graphs do; a released one is not begun again; one at most serves when out."""
    begun: list[int] = []
    holders: dict[int, int] = {}
    retired: set[int] = set()
    spare = 0
    while True:
        roll = rng.random()
        if roll < 0.02:
            k = rng.randrange(1, 5) + 4 * len(retired)
            if k not in begun and k not in retired and len(begun) < 3:
                w.add("p", "begin", k)
                begun.append(k)
                holders[k] = holders.get(k, 0) + 1
        elif roll < 0.04 and begun:
            w.add("p", "end", begun.pop(rng.randrange(len(begun))))
        elif roll < 0.05 and holders:
            k = rng.choice(sorted(holders))
            if k not in begun and k != spare:
                w.add("p", "release", k)
                holders[k] -= 1
                if not holders[k]:
                    del holders[k]
                    retired.add(k)
        elif roll < 0.055 and retired:
            w.add("p", "empty", rng.choice(sorted(retired)))
        elif roll < 0.06 and holders:
            w.add("p", "nosplit", rng.choice(sorted(holders)))
        elif roll < 0.065 and holders and not spare:
            spare = rng.choice(sorted(holders))
            w.add("p", "oom", spare)
        elif roll < 0.07:
            w.add("C", rng.choice([rng.randrange(50, 600) * MIB, TOTAL]))
        elif roll < 0.1 and w.live and w.streams > 1:
            w.add("r", rng.choice(w.live), w.other())
        w.step()
        yield


def _changing(pick: Callable[[random.Random], str], inner: Maker, chance: float = 0.01) -> Maker:
    def make(w: Writer, rng: random.Random) -> Iterator[None]:
        for _ in inner(w, rng):
            if rng.random() < chance:
                w.add("S", pick(rng))
            yield

    return make


def _mixed(w: Writer, rng: random.Random) -> Iterator[None]:
    makers = [_fraction(w, rng), _streams(w, rng), _capacity(w, rng)]
    while True:
        next(rng.choice(makers))
        yield


def _too_large(w: Writer, rng: random.Random) -> Iterator[None]:
    """Now and then a request that no reserved range holds (1 1/8 of the device), or only just; segments switched meanwhile."""
    inner = _changing(lambda rng: rng.choice(SWITCH), _mixed, 0.02)(w, rng)
    while True:
        if rng.random() < 0.03:
            size = rng.choice([TOTAL + TOTAL // 8, 2 * TOTAL, TOTAL, rng.randrange(TOTAL // 2, 3 * TOTAL)])
            w.add("a", w.ids, size + rng.choice([-MIB, -1, 0, 1, MIB, 20 * MIB]), rng.randrange(w.streams))
            w.live.append(w.ids)
            w.ids += 1
        next(inner)
        yield


SPLIT = ["max_split_size_mb:20", "max_split_size_mb:32", "max_split_size_mb:64,max_non_split_rounding_mb:24",
         "max_split_size_mb:24,max_non_split_rounding_mb:200", "max_non_split_rounding_mb:64"]  # fmt: skip
ROUND = ["roundup_power2_divisions:1", "roundup_power2_divisions:4", "roundup_power2_divisions:16",
         "roundup_power2_divisions:[4:2,16:8,64:4,>:1]", "roundup_power2_divisions:[1:8,8:0,>:2]",
         "roundup_power2_divisions:[32:256,64:128,256:64,>:32]", ""]  # fmt: skip
LARGE = ["large_segment_size_mb:11", "large_segment_size_mb:12", "large_segment_size_mb:32",
         "large_segment_size_mb:64,max_split_size_mb:64"]  # fmt: skip
COLLECT = ["garbage_collection_threshold:0.2", "garbage_collection_threshold:0.6",
           "garbage_collection_threshold:0.8,max_split_size_mb:32"]  # fmt: skip
EXPAND = ["expandable_segments:True", "expandable_segments:True,max_split_size_mb:32",
          "expandable_segments:True,garbage_collection_threshold:0.5", "expandable_segments:True,large_segment_size_mb:32",
          "expandable_segments:True,roundup_power2_divisions:4"]  # fmt: skip
RESERVE = ["expandable_segments:True,expandable_segments_reserve:" + x for x in ("0.05", "0.11", "1G", "0.1G", "2")]
SWITCH = ["expandable_segments:True", "expandable_segments:False"]
THROW = ["throw_on_cudamalloc_oom:True", "throw_on_cudamalloc_oom:True,expandable_segments:True"]
CHANGES = [*ROUND, *COLLECT[:2]]
ANY = ["", *SPLIT[:3], *ROUND[:4], *COLLECT, *EXPAND]

# name -> settings to begin with, what happens, streams at most, the first release that has it.
FAMILIES: dict[str, tuple[list[str], Maker, int, tuple[int, int]]] = {
    "default": ([""], _plain, 3, (2, 11)),
    "capacity": ([""], _capacity, 3, (2, 11)),
    "fraction": ([""], _fraction, 2, (2, 11)),
    "streams": ([""], _streams, 3, (2, 11)),
    "bump": ([""], _capacity, 2, (2, 11)),
    "split": (SPLIT, _capacity, 2, (2, 11)),
    "roundup": (ROUND, _capacity, 2, (2, 11)),
    "large": (LARGE, _capacity, 2, (2, 11)),
    "collect": (COLLECT, _fraction, 2, (2, 11)),
    "expandable": (EXPAND, _mixed, 3, (2, 11)),
    "switched": (SWITCH, _changing(lambda rng: rng.choice(SWITCH), _mixed), 2, (2, 11)),
    "bump_map": (EXPAND, _mixed, 3, (2, 11)),
    "bump_switched": (SWITCH, _changing(lambda rng: rng.choice(SWITCH), _mixed, 0.02), 2, (2, 11)),
    "too_large": (SWITCH, _too_large, 2, (2, 11)),
    "settings": (["max_split_size_mb:32"],
                 _changing(lambda rng: "max_split_size_mb:32," + rng.choice(CHANGES), _mixed), 2, (2, 11)),
    "pools": (["", "max_split_size_mb:32", "roundup_power2_divisions:4"], _pools, 2, (2, 11)),
    "pools_map": (["expandable_segments:True"], _pools, 1, (2, 11)),
    "throw": (THROW, _mixed, 2, (2, 12)),
    "reserve": (RESERVE, _mixed, 2, (2, 15)),
    "mixed": (ANY, _mixed, 3, (2, 11)),
}  # fmt: skip


def program(family: str, rng: random.Random, length: int, release: str) -> Program:
    confs, make, streams, since = FAMILIES[family]
    if tuple(map(int, release.split(".")[:2])) < since:
        confs = [""]
    # In 2.12 the order among equal blocks follows the order in which frees complete: a hash table's for several streams.
    one = release.startswith("2.12")
    w = Writer(rng, rng.randrange(1, streams + 1), rng.choice([5, 20, 60]), rng.choice([23.0, 25.0, 27.0]), one)
    conf = rng.choice(confs)
    for _ in make(w, rng):
        if len(w.commands) >= length:
            break
    return Program(conf, TOTAL, tuple(w.commands), "bump" if family.startswith("bump") else "lowest")
