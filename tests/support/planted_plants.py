"""What can be planted into an ordinary program, each on its own random numbers, so that the rest stays as it is without it."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from planted_bodies import MAIN, Writer
from planted_library import GIB, MIB, Op

EVAL = f"evaluate.py:40:evaluate>{MAIN}"
REQUEST = f"evaluate.py:60:concatenate>{EVAL}"
Planting = Callable[[Writer, str, int], None]


def live_bytes(ops: list[Op]) -> tuple[int, int]:
    """At peak, and at the end."""
    live, sizes, peak = 0, dict[object, int](), 0
    for op in ops:
        if op[0] == "a":
            sizes[op[1]] = int(str(op[2]))
            live += sizes[op[1]]
            peak = max(peak, live)
        elif op[0] == "f":
            live -= sizes.pop(op[1])
    return peak, live


@dataclass(frozen=True)
class Body:
    """The program to plant into: its live bytes at peak, its steps."""

    peak: int
    steps: int

    def last(self, where: str, step: int) -> bool:
        return where == "end" and step == self.steps - 1


def requests(w: Writer, rng: random.Random, size: int, holes: int) -> None:
    """Blocks of one size until more is live than ever before, by a part of what lies in holes."""
    peak, live = live_bytes(w.ops)
    wanted = peak - live + int(holes * rng.uniform(0.3, 0.8))
    size = max(size, wanted // 24)
    for _ in range(wanted // size + 1):
        w.alloc(size, REQUEST)


def carved(w: Writer, rng: random.Random, body: Body, stream: int) -> tuple[int, int]:
    """Large blocks are freed, then cut up by small ones that stay; the bytes of one hole, and of all."""
    whole = max(64 * MIB, body.peak // rng.randrange(6, 14) // MIB * MIB)
    cuts = rng.randrange(1, 5)
    many = max(2, int(body.peak * rng.uniform(0.25, 0.7)) // whole)
    if rng.random() < 0.7:
        w.add("e")
    w.free(*[w.alloc(whole, f"evaluate.py:51:gather>{EVAL}", stream) for _ in range(many)])
    fillers = []
    for _ in range(many * cuts):
        keeper = rng.randrange(2 * MIB, 8 * MIB)
        w.alloc(keeper, f"metrics.py:17:keep>{EVAL}", stream)
        fillers.append(w.alloc(whole // cuts - keeper - 2 * MIB, f"evaluate.py:55:gather>{EVAL}", stream))
    w.free(*fillers)
    return whole // cuts, whole * many


def pieces(rng: random.Random, body: Body) -> Planting:
    def hook(w: Writer, where: str, step: int) -> None:
        if body.last(where, step):
            hole, holes = carved(w, rng, body, 0)
            requests(w, rng, int(hole * rng.uniform(1.1, 2.5)), holes)

    return hook


def other_pool(rng: random.Random, body: Body) -> Planting:
    """The free bytes are in large segments, the request is a small one, or the other way round."""
    large = rng.random() < 0.5

    def hook(w: Writer, where: str, step: int) -> None:
        if not body.last(where, step):
            return
        if large:
            hole, holes = carved(w, rng, body, 0)
            requests(w, rng, int(hole * 1.2), holes)
            for _ in range(8):  # fills up what small segments have free
                w.alloc(MIB, REQUEST)
            return
        fillers = []
        for _ in range(min(500, max(150, int(body.peak * rng.uniform(0.15, 0.35)) // (2 * MIB)))):
            fillers += [w.alloc(MIB, f"tokens.py:12:encode>{EVAL}"), w.alloc(MIB - 8192, f"tokens.py:13:encode>{EVAL}")]
            w.alloc(8192, f"tokens.py:15:keep>{EVAL}")
        w.free(*fillers)
        requests(w, rng, rng.randrange(16, 200) * MIB, len(fillers) * MIB)

    return hook


def other_stream(rng: random.Random, body: Body) -> Planting:
    def hook(w: Writer, where: str, step: int) -> None:
        if body.last(where, step):
            hole, holes = carved(w, rng, body, 1 + rng.randrange(2))
            requests(w, rng, int(hole * rng.uniform(0.5, 0.85)), holes)

    return hook


def private_pool(rng: random.Random, body: Body) -> Planting:
    """A graph was captured into a pool of its own; most of what it used is free there, and nothing else gets it."""
    at = rng.choice(["load", "end"])

    def hook(w: Writer, where: str, step: int) -> None:
        if where == at and step == 0:
            w.add("p", "begin", 1)
            whole = max(32 * MIB, int(body.peak * rng.uniform(0.25, 0.6)) // rng.randrange(3, 9))
            blocks = [w.alloc(whole, f"graphs.py:77:capture>{MAIN}") for _ in range(rng.randrange(3, 9))]
            w.alloc(rng.randrange(2, 12) * MIB, f"graphs.py:80:capture>{MAIN}")
            w.free(*blocks)
            w.add("p", "end", 1)
        if body.last(where, step):
            requests(w, rng, int(body.peak * rng.uniform(0.1, 0.3)), body.peak // 4)

    return hook


def oversize(rng: random.Random, body: Body) -> Planting:
    """Blocks above max_split_size_mb are given whole to requests that are up to 20 MiB smaller."""

    def hook(w: Writer, where: str, step: int) -> None:
        if body.last(where, step):
            size = rng.randrange(136, 180) * MIB
            w.add("e")
            many = max(12, min(120, int(body.peak * rng.uniform(0.3, 0.7)) // size))
            w.free(*[w.alloc(size, f"shards.py:20:read>{EVAL}") for _ in range(many)])
            for _ in range(many):
                w.alloc(size - rng.randrange(14 * MIB, 18 * MIB), f"shards.py:26:convert>{EVAL}")
            requests(w, rng, 2 * size, 0)
            w.alloc(12 * MIB, REQUEST)

    return hook


def rounding(rng: random.Random, body: Body) -> Planting:
    """Sizes a little above what roundup_power2_divisions rounds to."""

    def hook(w: Writer, where: str, step: int) -> None:
        if where == "load":
            power = 1 << (int(body.peak * rng.uniform(0.03, 0.1)).bit_length() - 1)
            for _ in range(max(4, int(body.peak * rng.uniform(0.5, 0.9)) // power)):
                w.alloc(power + rng.randrange(1, 40) * 65536, f"shards.py:26:convert>{MAIN}")
        if body.last(where, step):
            size = 1 << (int(body.peak * rng.uniform(0.05, 0.2)).bit_length() - 1)
            requests(w, rng, size, body.peak // 5)

    return hook


def leak(rng: random.Random, body: Body) -> Planting:
    """One stack whose blocks of each step stay."""
    size, where_at = int(body.peak * rng.uniform(0.3, 1.2)) // body.steps, rng.choice(["end", "peak", "forward"])
    parts = rng.choice([1, 1, 2, 5])
    stack = rng.choice([f"metrics.py:23:update>{MAIN}", f"hooks.py:14:save_output>layers.py:33:forward>{MAIN}",
                        f"train.py:71:log_outputs>{MAIN}", f"cache.py:48:remember>{MAIN}"])  # fmt: skip

    def hook(w: Writer, where: str, step: int) -> None:
        if where == where_at:
            for _ in range(parts):
                w.alloc(int(size / parts * rng.choice([1, 1, 0.9])), stack)

    return hook


def upcast(rng: random.Random, body: Body) -> Planting:
    """Each step's largest request, so that what grows is noticed there."""

    def hook(w: Writer, where: str, step: int) -> None:
        if where == "peak":
            w.temp(body.peak // 6, f"loss.py:21:upcast>{MAIN}")

    return hook


def cached(rng: random.Random, body: Body) -> Planting:
    """A phase before the others takes much more than they need, or takes it on another stream."""
    stream, at = rng.choice([0, 0, 1]), rng.choice([-1, -1, 0])
    many, name = rng.randrange(2, 9), rng.choice(["tune.py:33:benchmark", "loader.py:80:read_shards", "evaluate.py:44:warm_up"])

    def hook(w: Writer, where: str, step: int) -> None:
        if (where == "load" and at < 0) or (where == "end" and step == at):
            size = int(body.peak * rng.uniform(0.6, 1.6)) // many
            w.free(*[w.alloc(int(size * rng.uniform(0.8, 1.2)), f"{name}>{MAIN}", stream) for _ in range(many)])

    return hook


def harmless(rng: random.Random, body: Body) -> Planting:
    """What looks bad and is not: a buffer that fills up and then stays, a spike, a second stream, caches that are returned."""
    kind, held = rng.choice(["buffer", "spike", "stream", "returned", "many"]), list[int]()

    def hook(w: Writer, where: str, step: int) -> None:
        if kind == "buffer" and where == "end":
            if len(held) == 4:
                w.free(held.pop(0))
            held.append(w.alloc(body.peak // 40 // MIB * MIB, f"replay.py:19:push>{MAIN}"))
        elif kind == "spike" and where == "peak" and step == 1:
            w.temp(body.peak // 8 // MIB * MIB, f"train.py:75:log_histogram>{MAIN}")
        elif kind == "stream" and where == "forward":
            w.temp(body.peak // 60 // MIB * MIB, f"data.py:44:prefetch>{MAIN}", 1)
        elif kind == "returned" and where == "load":
            w.temp(body.peak // 2, f"loader.py:80:read_shards>{MAIN}")
            w.add("e")
        elif kind == "many" and where == "load":
            for _ in range(150):
                w.alloc(rng.randrange(512, 60000), f"embedding.py:8:__init__>{MAIN}")

    return hook


PLANTS: dict[str, Callable[[random.Random, Body], Planting]] = {
    "pieces": pieces, "stream": other_stream, "pool": other_pool, "private_pool": private_pool, "oversize": oversize,
    "rounding": rounding, "leak": leak, "cached": cached, "upcast": upcast, "harmless": harmless,
}  # fmt: skip
FRAGMENTING = ("pieces", "stream", "pool", "private_pool", "oversize", "rounding")
SETTINGS_OF = {
    "oversize": ["max_split_size_mb:128"],
    "rounding": ["roundup_power2_divisions:2", "roundup_power2_divisions:2", "roundup_power2_divisions:4"],
}
DEVICES = [4.75, 8, 12, 16, 22, 24, 32, 40, 45, 48, 80, 94, 141]  # GiB that devices have


def device_above(nbytes: float, rng: random.Random) -> int:
    """A device with at least so much: one that exists."""
    fits = [int(g * GIB) for g in DEVICES if g * GIB >= nbytes]
    return rng.choice(fits[:2]) if fits else int(nbytes) // MIB * MIB + 8 * GIB
