"""A mixed pool as SplitwiseSim's: engines for prompts, engines for tokens, and those of either kind that do both for a while.

When a request comes, an engine for its prompt is chosen, the one that owes the fewest tokens, and one for its tokens, the one
that has promised the fewest tokens of memory.  Where the queues of the first kind are long, an engine of the other kind joins
the mixed ones; where the memory of the other kind is promised away, one of the first does.  A mixed engine that has nothing
left goes home.  Keys and values go from one to the other when the prompt is computed, each prompt's at the full rate; where
there is no room for them, they try again later.

Source: SplitwiseSim (Mutinifni/splitwise-sim @8f99e7dc, MIT), scheduler.py and interconnect.py, rules in own words.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, NamedTuple

import numpy as np

from gpusim.base.compiled import by_pointer, kernel, outlined, tables_at
from gpusim.base.tables import filled, record, signature
from gpusim.engine.serving.tiering import CopyWay
from gpusim.policies.schedule.parts.tables import NEVER, RequestTable

i8, f8 = np.int64, np.float64
PROMPTS, MIXED, TOKENS, KINDS = range(4)
ALL = -1
OWED, PROMISED = range(2)

MEMBER = record(
    [("kind", i8), ("home", i8), ("since", i8),  # among which engines; the first to join is the first among equals
     ("promised", i8), ("room", i8),             # tokens of keys and values
     ("waits", i8)]                              # parts that wait there, when an engine is chosen
)  # fmt: skip
TRIP = record([("time", i8), ("order", i8), ("request", i8), ("moves", i8)])  # when it arrives, or tries again

# Numbers: so many tokens owed are a long queue; ns until a second try; how often an engine has joined others; trips under way,
# and begun; those of them that move; tries that failed one after the other while nothing else went on.
LONG, RETRY, JOINED, TRIPS, BEGUN, MOVING, FAILED, NUMBERS = range(8)


@by_pointer
class PoolTables(NamedTuple):
    """E engines; n requests."""

    number: Annotated[Any, i8, NUMBERS]
    member: Annotated[Any, MEMBER, "E"]
    way: Annotated[Any, f8, "E", "E", 2]   # ns, and ns of a token, from one engine to another
    tokens_at: Annotated[Any, i8, "n"]     # the engine that makes the request's tokens
    trip: Annotated[Any, TRIP, "n"]        # a heap


POOL = signature(PoolTables)
pool_at = tables_at(POOL)


@dataclass(frozen=True)
class MixedPool:
    """What `routing="mixed_pool"` needs; the engines' roles say where each is at home.

    token    bytes of a token's keys and values that one way carries
    hands    ways from each engine to each other; copies do not hinder each other
    long     an engine owes so many tokens and has parts that wait: its queue is long
    retry    ns after which keys and values that found no room try again
    """

    token: float
    hands: Mapping[tuple[int, int], CopyWay] = field(default_factory=dict)
    long: int = 8192
    retry: int = 1_000_000_000


def pool_tables(pool: MixedPool | None, requests: int, room: Sequence[int], homes: Sequence[int]) -> PoolTables:
    """Tables of engines with room for so many tokens each; without a pool they are not used."""
    if pool is None:
        return filled(PoolTables, {})
    made = filled(PoolTables, {"E": len(room), "n": requests})
    made.number[[LONG, RETRY, JOINED]] = pool.long, pool.retry, len(room)
    made.member["home"] = made.member["kind"] = homes
    made.member["since"], made.member["room"], made.tokens_at[:] = np.arange(len(room)), room, -1
    for (a, b), way in pool.hands.items():
        made.way[a, b] = way.latency, pool.token / way.rate
    return made


@kernel
def least(p: PoolTables, engine: Any, what: int, kind: int) -> int:
    """The engine of a kind, or of ALL, that has the least; among equals by kind, and the first to join.  -1: there is none."""
    best, fewest = -1, 0
    for e in range(p.member.size):
        m = p.member[e]
        has = engine[e].owes if what == OWED else m.promised
        if kind != ALL and m.kind != kind:
            continue
        if best >= 0 and has == fewest:
            b = p.member[best]
            if m.kind < b.kind or (m.kind == b.kind and m.since < b.since):
                best = e
        elif best < 0 or has < fewest:
            best, fewest = e, has
    return best


@kernel
def join(p: PoolTables, e: int, kind: int) -> None:
    """An engine is among those of a kind from now on, the last of them."""
    p.member[e].kind, p.member[e].since = kind, p.number[JOINED]
    p.number[JOINED] += 1


@kernel
def go_home(p: PoolTables, e: int) -> None:
    """An engine has nothing left to do."""
    if p.member[e].kind == MIXED:
        join(p, e, p.member[e].home)


@outlined
def assign(p: PoolTables, requests: RequestTable, engine: Any, r: int) -> int:
    """The engine of the request's prompt; `tokens_at` has that of its tokens."""
    prompt = tokens = -1
    for kind in (PROMPTS, MIXED):
        if prompt < 0:
            e = least(p, engine, OWED, kind)
            if e >= 0 and not (p.member[e].waits > 0 and engine[e].owes + requests.prompt[r] > p.number[LONG]):
                prompt = e
    for kind in (TOKENS, MIXED):
        if tokens < 0:
            e = least(p, engine, PROMISED, kind)
            if e >= 0 and p.member[e].promised + requests.prompt[r] + requests.output[r] <= p.member[e].room:
                tokens = e
    if prompt < 0:
        prompt = least(p, engine, OWED, TOKENS)
        if prompt >= 0:
            join(p, prompt, MIXED)
    if tokens < 0:
        tokens = least(p, engine, PROMISED, PROMPTS)
        if tokens >= 0:
            join(p, tokens, MIXED)
    if prompt < 0 or tokens < 0:
        prompt = tokens = least(p, engine, OWED, ALL)
    p.tokens_at[r] = tokens
    return prompt


@kernel
def goes_before(a: Any, b: Any) -> bool:
    return bool(a.time < b.time or (a.time == b.time and a.order < b.order))


@kernel
def put(row: Any, time: int, order: int, request: int, moves: int) -> None:
    row.time, row.order, row.request, row.moves = time, order, request, moves


@outlined
def depart(p: PoolTables, r: int, time: int, moves: int) -> None:
    """The keys and values of a prompt arrive at this time, or try again then."""
    at, order = p.number[TRIPS], p.number[BEGUN]
    p.number[TRIPS], p.number[BEGUN] = at + 1, order + 1
    p.number[MOVING] += moves
    while at > 0:
        above = p.trip[(at - 1) >> 1]
        if above.time <= time:
            break
        put(p.trip[at], above.time, above.order, above.request, above.moves)
        at = (at - 1) >> 1
    put(p.trip[at], time, order, r, moves)


@outlined
def next_trip(p: PoolTables) -> Any:
    """The first of the trips is over: (request, whether it has arrived)."""
    r, moves = p.trip[0].request, p.trip[0].moves
    count, at = p.number[TRIPS] - 1, 0
    p.number[TRIPS] = count
    p.number[MOVING] -= moves
    last = p.trip[count]
    while 2 * at + 1 < count:
        child = 2 * at + 1
        if child + 1 < count and goes_before(p.trip[child + 1], p.trip[child]):
            child += 1
        x = p.trip[child]
        if not goes_before(x, last):
            break
        put(p.trip[at], x.time, x.order, x.request, x.moves)
        at = child
    put(p.trip[at], last.time, last.order, last.request, last.moves)
    return r, moves


@kernel
def next_arrival(p: PoolTables) -> int:
    """When the first trip is over, ns; NEVER: none is under way."""
    return int(p.trip[0].time) if p.number[TRIPS] > 0 else NEVER
