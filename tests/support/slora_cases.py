"""Random cases for S-LoRA's router, and how this project plays one: rows of each step, the pool and its adapters."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from typing import Any

from gpusim.base.errors import PolicyError
from gpusim.policies.registry import get
from gpusim.policies.schedule.parts import slora_tables as s
from gpusim.policies.schedule.parts.running import EngineLimits, request_table
from gpusim.policies.schedule.parts.waiting import IN_LINE

STOPS = "the pool has no room"
FAILS = "the real engine fails"
FAMILIES = ("ample", "tight", "prefetch", "prefetch tight", "many adapters", "bursts", "aborts")


@dataclass
class SloraCase:
    """An engine, and requests: (step before which it comes, prompt, output, adapter, step before which its client goes, -1)."""

    cells: int
    extra: int
    seqs: int
    tokens: int
    longest: int
    rank: int
    prefetch: bool
    requests: list[tuple[int, int, int, int, int]] = field(default_factory=list)


def case(seed: int, family: str) -> SloraCase:
    """One case of a family; the same for the same seed."""
    draw = random.Random(f"{family} {seed}")
    longest, rank = draw.choice((24, 48, 96)), draw.choice((1, 2, 4))
    tight = "tight" in family
    cells = longest + 4 * rank + draw.randrange(1, 2 * longest) * (1 if tight else 5)
    c = SloraCase(
        cells, draw.choice((0, 0, 8 * rank, 40 * rank)), draw.choice((2, 4, 16)), longest + draw.randrange(longest), longest,
        rank, "prefetch" in family or draw.random() < 0.3,
    )  # fmt: skip
    adapters, step = draw.choice((1, 3, 8)) if family != "many adapters" else 24, 0
    for _ in range(draw.randrange(3, 30)):
        step += 0 if family == "bursts" else draw.choice((0, 0, 1, 4, 12))
        prompt = draw.randrange(1, longest - 1)
        output = draw.randrange(1, longest - prompt + 1)
        gone = step + draw.randrange(1, 40) if family == "aborts" and draw.random() < 0.4 else -1
        c.requests.append((step, prompt, output, draw.randrange(adapters + 1), gone))
    return c


def at_once(c: SloraCase) -> SloraCase:
    """All its requests are there from the first step on, stay, and want an adapter; nothing is prefetched."""
    return replace(c, prefetch=False, requests=[(0, prompt, output, max(a, 1), -1) for _, prompt, output, a, _ in c.requests])


def fits(c: SloraCase, r: int) -> bool:
    """Whether the request has ever room, beside its adapter."""
    _, prompt, output, adapter, _ = c.requests[r]
    return prompt + output < c.cells - 4 * c.rank * (adapter > 0)


class SimulatedSlora:
    """This project's scheduler."""

    def __init__(self, c: SloraCase) -> None:
        come, prompt, output, adapter, _ = (list(column) for column in zip(*c.requests, strict=True))
        table = request_table(come, prompt, output, adapter=adapter)
        spec = f"slora(adapter_cells={4 * c.rank},prefetch={int(c.prefetch)},pool_size_lora={c.extra})"
        limits = EngineLimits(c.cells + c.extra, 1, c.seqs, c.tokens, c.longest)
        self.run = get("schedule", spec).start(table, limits)
        self.own, self.queue = (placed.tables for placed in self.run.tables)

    def arrive(self, r: int) -> bool:
        return self.run.arrive(r) == 0

    def leave(self, r: int) -> None:
        self.run.leave(r)

    def adapters(self) -> list[int]:
        return [i for i, there in enumerate(self.own.loaded.tolist()) if there]

    def step(self) -> tuple[Any, ...]:
        try:
            rows = self.run.compose()
        except PolicyError:
            return (STOPS,)
        computed = list(zip(self.run.step.request[:rows].tolist(), self.run.step.tokens[:rows].tolist(), strict=True))
        during = self.adapters()
        ended = sorted(self.run.step.ended[: self.run.over()].tolist()) if rows else []
        word = self.own.word
        batch = self.own.batch[: word[s.SIZE]].tolist()
        return (computed, during, ended, batch, self.adapters(), int(word[s.FREE_CELLS]), self.queue.count[IN_LINE].item())


def play(c: SloraCase, makers: tuple[Any, ...]) -> tuple[list[tuple[Any, ...]], str]:
    """Steps of the first implementation, and how the others differ ("" where they do not)."""
    sides = [make(c) for make in makers]
    told: list[tuple[Any, ...]] = []
    came, idle, taken = 0, 0, set[int]()
    while (came < len(c.requests) or idle < 2) and len(told) < 2000:
        now = len(told)
        for r in sorted(taken):
            if c.requests[r][4] == now:
                for side in sides:
                    side.leave(r)
        while came < len(c.requests) and c.requests[came][0] <= now:
            if sides[0].arrive(came):  # one that has never room is not given to the others, where it waits for ever
                taken.add(came)
                for side in sides[1:]:
                    side.arrive(came)
            came += 1
        got = [side.step() for side in sides]
        if any(other == (FAILS,) for other in got[1:]):
            return told, FAILS
        if any(other != got[0] for other in got[1:]):
            return told, f"step {now}: {got}"
        told.append(got[0])
        if got[0] == (STOPS,):
            break
        idle = 0 if got[0][0] else idle + 1
    return told, ""


