"""Random operations on a manager of chunks in host memory, and what one implementation answers to them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np

from gpusim.policies.schedule.parts import offload, offload_tables

Answer = tuple[int, ...]


class Manager(Protocol):
    """One implementation; a request is its keys, of which a call names those from `first` to `end`."""

    def begin(self, keys: list[int]) -> Any: ...
    def lookup(self, request: Any, first: int, end: int) -> Answer: ...
    def touch(self, request: Any, first: int, end: int) -> None: ...
    def load(self, request: Any, first: int, end: int, begin: bool) -> None: ...
    def store(self, request: Any, first: int, end: int) -> Answer: ...
    def stored(self, request: Any, first: int, end: int, well: bool) -> None: ...
    def finish(self, request: Any) -> None: ...


class SimulatedManager:
    """This project's."""

    def __init__(self, name: str, chunks: int, threshold: int, tracked: int) -> None:
        self.table = offload_tables.offload_manager(chunks, name)
        self.counts = offload_tables.store_counts(threshold, tracked)

    def begin(self, keys: list[int]) -> Any:
        return np.array(keys, np.int64), offload_tables.request_memory(len(keys))

    def lookup(self, request: Any, first: int, end: int) -> Answer:
        return offload.offload_lookup(self.table, request[0], first, end)

    def touch(self, request: Any, first: int, end: int) -> None:
        offload.offload_touch(self.table, request[0], first, end)

    def load(self, request: Any, first: int, end: int, begin: bool) -> None:
        offload.offload_load(self.table, *request, first, end, int(begin))

    def store(self, request: Any, first: int, end: int) -> Answer:
        """How many are stored, which and where, and which keys were evicted; or -1."""
        count = offload.offload_store(self.table, self.counts, *request, first, end)
        if count < 0:
            return (-1,)
        stored = [int(x) for i, chunk in self.table.stored[:count] for x in (request[0][i], chunk)]
        return count, *stored, *(int(k) for k in self.table.evicted[: self.table.head[0]["evicted"], 0])

    def stored(self, request: Any, first: int, end: int, well: bool) -> None:
        offload.offload_stored(self.table, request[0], first, end, int(well))

    def finish(self, request: Any) -> None:
        offload.offload_request_ends(self.table, *request)


def answers(seed: int, name: str, operations: int, make: Any) -> Iterator[tuple[str, Answer]]:
    """What a manager answers to so many operations, with their names.

    make  (name, chunks, threshold, tracked) -> Manager
    """
    rng = random.Random(f"{seed} {name}")
    later = not name.endswith("0.11")
    threshold = rng.choice((1, 1, 2, 3)) if later else 1
    manager: Manager = make(name, rng.choice((4, 10, 24)), threshold, rng.choice((6, 40)))
    prompts: list[list[int]] = [[]]
    live: list[dict[str, Any]] = []
    fresh = 0
    for _ in range(operations):
        if len(live) < 4 and rng.random() < 0.5:
            stem = rng.choice(prompts[-12:])
            keys = stem[: rng.randrange(len(stem) + 1)]
            added = rng.randrange(1, 7)
            keys = [*keys, *range(fresh, fresh + added)]
            fresh += added
            prompts.append(keys)
            live.append({"keys": keys, "own": manager.begin(keys), "loads": [], "stores": []})
            continue
        if not live:
            continue
        r = rng.choice(live)
        first = rng.randrange(len(r["keys"]))
        first = first if rng.random() < 0.4 else 0
        end = rng.randrange(first, len(r["keys"]) + 1)
        chance = rng.random()
        if chance < 0.15:
            yield "lookup", manager.lookup(r["own"], first, end)
        elif chance < 0.25:
            manager.touch(r["own"], first, end)
            yield "touch", ()
        elif chance < 0.4:
            many, _ = manager.lookup(r["own"], first, end)
            if many:
                manager.load(r["own"], first, first + many, True)
                r["loads"].append((first, first + many))
            yield "load", (many,)
        elif chance < 0.5 and r["loads"]:
            manager.load(r["own"], *r["loads"].pop(rng.randrange(len(r["loads"]))), False)
            yield "end of load", ()
        elif chance < 0.72:
            answer = manager.store(r["own"], first, end)
            r["stores"] += [r["keys"].index(k) for k in answer[1 : 1 + 2 * max(answer[0], 0) : 2]]
            yield "store", answer
        elif chance < 0.9 and r["stores"]:
            many = rng.randrange(1, len(r["stores"]) + 1)
            well = rng.random() < 0.9
            for i in r["stores"][:many]:
                manager.stored(r["own"], i, i + 1, well)
            del r["stores"][:many]
            yield "end of store", (many,)
        elif chance > 0.93:
            for i in r["stores"]:
                manager.stored(r["own"], i, i + 1, True)
            for part in r["loads"]:
                manager.load(r["own"], *part, False)
            manager.finish(r["own"])
            live.remove(r)
            yield "finish", ()
