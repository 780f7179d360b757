"""Random services for vLLM's v0 scheduler, and what an implementation does at each step."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Protocol

from gpusim.base.errors import PolicyError
from gpusim.policies.registry import get
from gpusim.policies.schedule.parts import tables as t
from gpusim.policies.schedule.parts import v0_tables as v
from gpusim.policies.schedule.parts.running import EngineLimits, request_table
from gpusim.policies.schedule.parts.v0_blocks import DEVICE, HOST
from gpusim.policies.schedule.parts.waiting import HOLDING, IN_LINE, LISTS

FAMILIES = (
    "plain", "cached", "swap", "cached swap", "chunked", "chunked cached", "chunked swap", "priority", "cached priority",
    "tight", "short steps", "aborts",
)  # fmt: skip
STOPS = "the engine stops"
FAILS = "the real engine fails"


@dataclass
class V0Case:
    """Options of an engine, and requests: (step of arrival, prompt tokens, output, priority, step at which it is aborted)."""

    block: int = 4
    blocks: int = 20
    host: int = 0
    seqs: int = 8
    tokens: int = 64
    longest: int = 64
    watermark: float = 0.01
    caching: int = 0
    chunked: int = 0
    priority: int = 0
    requests: list[tuple[int, list[int], int, int, int]] = field(default_factory=list)


def case(seed: int, family: str) -> V0Case:
    rng = random.Random(f"{seed} {family}")
    c = V0Case(block=rng.choice((1, 2, 4, 4, 16)), seqs=rng.choice((2, 4, 8, 16)), watermark=rng.choice((0.01, 0.01, 0.1)))
    c.longest = rng.choice((24, 64))
    c.blocks = max(2, rng.randrange(c.longest, 4 * c.longest) // c.block)
    if family == "tight":
        c.blocks = max(2, rng.randrange(c.longest // 3, c.longest) // c.block)
    c.caching, c.chunked = int("cached" in family), int("chunked" in family)
    c.priority = int("priority" in family)
    if "swap" in family:
        c.host = rng.choice((c.blocks, 3 * c.blocks, max(1, c.blocks // 2)))
    c.tokens = rng.randrange(4, 40) if c.chunked else max(c.longest, rng.choice((24, 64, 128)))
    if family == "short steps":
        c.tokens, c.chunked = c.longest, 0
    stems = [[rng.randrange(50) for _ in range(c.longest)] for _ in range(3)]
    step = 0
    for r in range(rng.randrange(6, 24)):
        step += rng.choice((0, 0, 1, 3))
        size = rng.randrange(1, c.longest - 1)
        shared = rng.randrange(size + 1) if c.caching and rng.random() < 0.7 else 0
        prompt = rng.choice(stems)[:shared] + [100 + 100 * r + i for i in range(size - shared)]
        gone = step + rng.randrange(12) if family == "aborts" and rng.random() < 0.4 else -1
        c.requests.append((step, prompt, rng.randrange(1, c.longest - size + 1), rng.randrange(3), gone))
    return c


class Player(Protocol):
    """One implementation; `quietly` is a step and its end without telling anything, and whether anything ran or ended."""

    def arrive(self, r: int) -> None: ...
    def leave(self, r: int) -> None: ...
    def step(self) -> tuple[Any, ...]: ...
    def over(self) -> list[int]: ...
    def quietly(self) -> bool: ...


class SimulatedV0:
    """This project's scheduler."""

    def __init__(self, c: V0Case, at_once: bool = False) -> None:
        """at_once: the clock that counts steps (`step_clock`) finds all requests there from the first step on."""
        names: dict[tuple[int, ...], int] = {}
        start, identity = [0], []
        for _, prompt, *_ in c.requests:
            for k in range(len(prompt) // c.block):
                identity.append(names.setdefault(tuple(prompt[: (k + 1) * c.block]), len(names)))
            start.append(len(identity))
        come = [0 if at_once else a for a, *_ in c.requests]
        table = request_table(
            come, [len(p) for _, p, *_ in c.requests], [o for _, _, o, *_ in c.requests],
            priority=[p for _, _, _, p, _ in c.requests], known=[(b - a) * c.block for a, b in pairwise(start)],
            start=start, identity=identity, piece=c.block,
        )  # fmt: skip
        mode = f"preemption_mode=swap,num_cpu_blocks={c.host}," if c.host else ""
        spec = (
            f"vllm@0.9({mode}enable_prefix_caching={c.caching},enable_chunked_prefill={c.chunked},"
            f"policy={'priority' if c.priority else 'fcfs'},watermark={c.watermark},too_long=cut)"
        )
        limits = EngineLimits(c.blocks, c.block, c.seqs, c.tokens, c.longest)
        self.run = get("schedule", spec).start(table, limits)
        self.own, self.pools, self.queue = (placed.tables for placed in self.run.tables)

    def arrive(self, r: int) -> None:
        self.run.arrive(r)

    def leave(self, r: int) -> None:
        self.run.leave(r)

    def _ring(self, ring: int) -> list[int]:
        last = self.queue.ahead.size - LISTS + ring
        line, r = [], int(self.queue.behind[last])
        while r != last:
            line.append(r)
            r = int(self.queue.behind[r])
        return line

    def step(self) -> tuple[Any, ...]:
        try:
            rows = self.run.compose()
        except PolicyError:
            return (STOPS,)
        s, own = self.run.step, self.own
        scheduled = sorted((int(r), int(own.chunk[r])) for r in s.request[:rows])
        running = own.running[: own.word[v.RUNS]].tolist()
        blocks = [own.block[own.slot[r], : own.held[r]].tolist() for r in running]
        free = [int(self.pools.top[d] + self.pools.ranked[d]) for d in (DEVICE, HOST)]
        refused = sorted(s.ended[: s.word[t.N_ENDED]].tolist())
        return (scheduled, running, self._ring(IN_LINE), self._ring(HOLDING), blocks, free, refused)

    def over(self) -> list[int]:
        return sorted(self.run.step.ended[: self.run.over()].tolist())

    def quietly(self) -> bool:
        rows = self.run.compose()
        return self.run.over() + rows > 0


def play(c: V0Case, make: Any) -> Iterator[tuple[Any, ...]]:
    """What the implementation does at each step.  make: V0Case -> Player."""
    player: Player = make(c)
    live: set[int] = set()
    swapped: set[int] = set()
    came, step, idle = 0, 0, 0
    while (came < len(c.requests) or live) and idle < 3 and step < 600:
        while came < len(c.requests) and c.requests[came][0] <= step:
            player.arrive(came)
            live.add(came)
            came += 1
        for r in sorted(live):
            # Aborting a swapped request makes the real engine fail where prefixes are cached.
            if c.requests[r][4] == step and not (c.caching and r in swapped):
                player.leave(r)
                live.discard(r)
        told = player.step()
        yield told
        if told[0] in (STOPS, FAILS):
            return
        swapped = set(told[3])
        live -= set(told[6])
        idle = 0 if told[0] else idle + 1
        done = player.over()
        live -= set(done)
        yield (done,)
        step += 1


def rush(c: V0Case, player: Player) -> int:
    """Serve the requests, all of which are there from the first step on, telling nothing; how many steps that takes."""
    for r in range(len(c.requests)):
        player.arrive(r)
    steps = 0
    while player.quietly():
        steps += 1
    return steps
