"""Random operations on a tier of chunks under one of LMCache's policies, and what one implementation answers to them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np

from gpusim.policies.schedule.parts import chunk_policies


class Tier(Protocol):
    """One implementation."""

    def put(self, key: int) -> bool: ...
    def hit(self, key: int) -> bool: ...
    def use(self, key: int, more: int) -> None: ...
    def remove(self, key: int) -> None: ...
    def evict(self, many: int) -> list[int]: ...


class SimulatedTier:
    """This project's."""

    def __init__(self, policy: str, chunks: int) -> None:
        self.table = chunk_policies.chunk_cache(chunks, policy)
        self.out = np.zeros(chunks + 2, np.int64)

    def put(self, key: int) -> bool:
        return bool(chunk_policies.chunk_put(self.table, key))

    def hit(self, key: int) -> bool:
        return bool(chunk_policies.chunk_hit(self.table, key))

    def use(self, key: int, more: int) -> None:
        chunk_policies.chunk_use(self.table, key, more)

    def remove(self, key: int) -> None:
        chunk_policies.chunk_remove(self.table, key)

    def evict(self, many: int) -> list[int]:
        return self.out[: chunk_policies.chunk_evict(self.table, many, self.out)].tolist()


def answers(seed: int, policy: str, operations: int, make: Any) -> Iterator[tuple[str, tuple[int, ...]]]:
    """What a tier answers to so many operations, with their names.  make: (policy, chunks) -> Tier."""
    rng = random.Random(f"{seed} {policy}")
    chunks = rng.choice((5, 16, 40))
    tier: Tier = make(policy, chunks)
    used: list[int] = []
    there: set[int] = set()
    for _ in range(operations):
        chance, key = rng.random(), int(rng.expovariate(1 / chunks))
        if chance < 0.4:
            found = tier.hit(key)
            yield "hit", (int(found),)
        elif chance < 0.75:
            freed = tier.evict(1) if len(there) >= chunks and key not in there else []
            there -= set(freed)
            stored = tier.put(key)
            there |= {key} if stored else set()
            yield "put", (int(stored), *freed)
        elif chance < 0.82 and there - set(used):
            key = rng.choice(sorted(there - set(used)))
            tier.use(key, 1)
            used.append(key)
            yield "use", (key,)
        elif chance < 0.9 and used:
            key = used.pop(rng.randrange(len(used)))
            tier.use(key, -1)
            yield "end of use", (key,)
        elif chance < 0.94 and there - set(used):
            key = rng.choice(sorted(there - set(used)))
            tier.remove(key)
            there.discard(key)
            yield "remove", (key,)
        elif chance > 0.96:
            freed = tier.evict(rng.randrange(1, chunks))
            there -= set(freed)
            yield "evict", tuple(freed)
