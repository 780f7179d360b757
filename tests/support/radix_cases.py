"""Random operations on a prefix cache, and what one implementation answers to them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np

from gpusim.policies.schedule.parts import radix
from gpusim.policies.schedule.parts.radix_tables import radix_tree

Answer = tuple[int, ...]
PAGES = 160  # of KV memory of a case


class Cache(Protocol):
    """One implementation; a handle names a node and stays valid while the node is locked."""

    def match(self, key: list[int], space: int) -> tuple[Any, list[int]]: ...
    def insert(self, key: list[int], held: list[int], space: int, priority: int, inserted: int) -> int: ...
    def lock(self, handle: Any) -> Any: ...
    def unlock(self, handle: Any) -> None: ...
    def evict(self, tokens: int) -> list[int]: ...
    def sizes(self) -> tuple[int, int]: ...


class Simulated:
    """This project's tree: pages of KV memory have numbers, and pages of tokens are numbered as they are met."""

    def __init__(self, policy: str, page: int, unified: bool, options: dict[str, int]) -> None:
        self.page, self.symbols = page, {}
        self.tree = radix_tree(PAGES, page, policy, unified=unified, **options)
        self.out = np.zeros(PAGES, np.int64)

    def _key(self, key: list[int]) -> Any:
        pages = [tuple(key[i : i + self.page]) for i in range(0, len(key) - self.page + 1, self.page)]
        return np.array([self.symbols.setdefault(p, len(self.symbols)) for p in pages], np.int64)

    def match(self, key: list[int], space: int) -> tuple[Any, list[int]]:
        node, _ = radix.radix_match(self.tree, self._key(key), space)
        return node, self.out[: radix.radix_path(self.tree, node, self.out)].tolist()

    def insert(self, key: list[int], held: list[int], space: int, priority: int, inserted: int) -> int:
        return radix.radix_insert(self.tree, self._key(key), np.array(held, np.int64), space, priority, inserted)[1] * self.page

    def lock(self, handle: Any) -> Any:
        radix.radix_lock(self.tree, handle, 1)
        return handle

    def unlock(self, handle: Any) -> None:
        radix.radix_lock(self.tree, handle, 0)

    def evict(self, tokens: int) -> list[int]:
        return self.out[: radix.radix_evict(self.tree, tokens, self.out)].tolist()

    def sizes(self) -> tuple[int, int]:
        return int(self.tree.tree[0]["evictable"]), int(self.tree.tree[0]["protected"])


def keys(rng: random.Random, page: int) -> Iterator[list[int]]:
    """Prompts that share prefixes, continue each other and differ late."""
    past: list[list[int]] = [[]]
    words = rng.choice((2, 3, 8))
    while True:
        stem = rng.choice(past[-30:])
        cut = rng.randrange(len(stem) + 1) if rng.random() < 0.6 else len(stem)
        key = stem[:cut] + [rng.randrange(words) for _ in range(rng.randrange(12 * page))]
        key = key[: 40 * page]
        past.append(key)
        yield key


def answers(seed: int, policy: str, page: int, unified: bool, operations: int, make: Any) -> Iterator[tuple[str, Answer]]:
    """What the implementation answers to so many operations, with their names.

    make  (policy, page, unified, options) -> Cache
    """
    rng = random.Random(f"{seed} {policy} {page} {unified}")
    options = {"threshold": rng.randrange(1, 30 * page), "estimate": rng.randrange(8 * page)} if policy == "tlru" else {}
    if policy == "slru":
        options = {"protected_hits": rng.choice((2, 2, 3, 4))}
    cache: Cache = make(policy, page, unified, options)
    free, locked, key = list(range(PAGES)), [], keys(rng, page)
    spaces = rng.choice((1, 1, 3))
    for _ in range(operations):
        chance, space = rng.random(), rng.randrange(spaces)
        if chance < 0.2:
            yield "match", (*cache.match(next(key), space)[1], *cache.sizes())
        elif chance < 0.55:
            tokens = next(key)
            need = len(tokens) // page
            if need > len(free):
                freed = cache.evict((need - len(free)) * page)
                free += freed
                yield "evict", (*freed, *cache.sizes())
            if need > len(free):
                continue
            held = [free.pop() for _ in range(need)]
            # what a request has inserted of this prompt before, in whole pages
            inserted = rng.randrange(need + 1) * page if rng.random() < 0.4 else 0
            there = cache.insert(tokens, held, space, rng.randrange(4), inserted)
            free += held[: there // page]
            yield "insert", (there, *cache.sizes())
        elif chance < 0.72 and len(locked) < 12:
            handle, slots = cache.match(next(key), space)
            locked.append(cache.lock(handle))
            yield "lock", (len(slots), *cache.sizes())
        elif chance < 0.92:
            if not locked:
                continue
            cache.unlock(locked.pop(rng.randrange(len(locked))))
            yield "unlock", cache.sizes()
        else:
            freed = cache.evict(rng.randrange(1, 20 * page))
            free += freed
            yield "evict", (*freed, *cache.sizes())
