"""Keys and values below the device: which chunks of a prompt a tier holds, what leaves it, and what is on its way.

A chunk is a piece of the requests' identities.  Each engine has a chain of tiers, nearest first; engines may share one.
A tier keeps whole chunks under an evict policy; chunks that are being written or read stay.  Chunks of one request are taken
in tail first, so that among equals heads are the younger ones.  Copies of one way follow each other, as on a copy stream; ways
share links.

    look_up   how many leading tokens of a prompt the device and the chain hold
    load      a scheduler has sent for some of them: one copy from each tier that holds some; the nearest tier keeps them, too
    offer     a step has completed chunks: those that the nearest tier is to have go there
    save      the device has given chunks up that are nowhere else
    put       a chunk enters a tier; the one that leaves it for this goes one tier down, and so on
"""

from __future__ import annotations

import math
from typing import Annotated, Any, NamedTuple

import numpy as np

from gpusim.base.compiled import by_pointer, function_at, kernel, outlined, tables_at
from gpusim.base.tables import record, signature
from gpusim.policies import contract
from gpusim.policies.schedule.parts import tables as told
from gpusim.policies.schedule.parts.tables import NEVER, RequestTable, StepTable

u1, i4, i8, f8 = np.uint8, np.int32, np.int64, np.float64

# When a chunk of the device goes to the nearest tier; WRITE_ALL: as WRITE_THROUGH, and on to all tiers below.
NOTHING, WRITE_THROUGH, SELECTIVE, WRITE_BACK, WRITE_ALL = range(5)
ABSENT, COMING, READY = range(3)  # of a chunk in a tier

TIER = record(
    [("capacity", i8), ("used", i8), ("peak", i8),  # chunks
     ("scored", i8),     # its policy is a score: the lowest leaves first
     ("reload", f8),     # ns of a chunk from here to the device where nothing else is on the way
     ("stored", i8), ("loaded", i8), ("evicted", i8), ("declined", i8)]  # chunks so far; declined: there was no room
)  # fmt: skip

WAY = record(
    [("latency", i8), ("rate", f8), ("wire", f8),  # bytes that flow for each of keys and values
     ("route", i8), ("route_end", i8),
     ("first", i8), ("last", i8),  # 1 + number of the transfer under way and of the last behind it, 0: none
     ("begins", i8),               # ns: when the first begins to flow, NEVER: it does, or there is none
     ("bytes", f8), ("busy", i8), ("since", i8)]  # moved; ns in which it had a copy; since when
)  # fmt: skip

# Copies of chunks of a request: to the device, or into a tier; of one chunk between tiers; of a prompt from another device.
LOAD, STORE, SINK, HAND = range(4)
TRANSFER = record(
    [("next", i8), ("kind", i8), ("engine", i8), ("depth", i8), ("request", i8), ("first", i8), ("end", i8), ("way", i8),
     ("bytes", f8)]
)  # fmt: skip


@by_pointer
class TierTables(NamedTuple):
    """T tiers and E engines with chains of D tiers each; n requests with chunks in `chunk[start[r] : start[r + 1]]`."""

    tier: Annotated[Any, TIER, "T"]
    chain: Annotated[Any, i8, "E", "D"]          # rows of `tier`, -1 behind the last
    into: Annotated[Any, i8, "E", "D"]           # ways from the device into each, from each to the device,
    out_of: Annotated[Any, i8, "E", "D"]
    down: Annotated[Any, i8, "E", "D"]           # and from each to the next
    hand: Annotated[Any, i8, "E", "E"]           # ways from one engine's device to another's
    way: Annotated[Any, WAY, "ways"]
    transfer: Annotated[Any, TRANSFER, "transfers"]
    spare: Annotated[Any, i8, "spare"]           # how many rows of `transfer` are free, and which
    when: Annotated[Any, i8, 1]                  # NOTHING, WRITE_THROUGH, SELECTIVE, WRITE_BACK
    bytes: Annotated[Any, f8, 2]                 # of a token, and of a chunk
    chunk: Annotated[Any, i4, "pieces"]          # dense numbers
    next_use: Annotated[Any, i4, "pieces"]       # the next place in `chunk` that has the same number, -1: none
    latest: Annotated[Any, i4, "chunks"]         # of each chunk the latest place that was used
    turn: Annotated[Any, i4, "pieces"]           # when the chunk at a place is used: those of a request tail first
    depth: Annotated[Any, f8, "chunks"]          # tokens before it
    entered: Annotated[Any, f8, "chunks"]        # when it came into a tier, and when it was used first of all
    born: Annotated[Any, f8, "chunks"]
    mark: Annotated[Any, u1, "pieces"]           # 1 + depth from or to which a copy under way takes it
    where: Annotated[Any, u1, "T", "chunks"]     # ABSENT, COMING, READY
    held: Annotated[Any, u1, "T", "chunks"]      # it may not leave: copies are under way,
    copies: Annotated[Any, i4, "T", "chunks"]    # so many
    uses: Annotated[Any, i4, "chunks"]           # how often it was loaded or computed
    pending: Annotated[Any, i4, "n"]             # copies that a request waits for
    state: Annotated[Any, i8, "T", "words"]      # of the evict policies
    keys: Annotated[Any, f8, "T", "numbers"]
    verbs: Annotated[Any, i8, "T", 5, 2]         # insert, touch, remove, victim, score
    params: Annotated[Any, f8, "T", "parameters"]
    facts: Annotated[Any, f8, len(contract.FACTS)]
    managed: Annotated[Any, i8, 1]               # 0, or whose manager has the tiers: `policies.schedule.parts.managers`
    manager: Annotated[Any, i8, "T"]             # of each tier addresses of its ChunkTable, and of the one that counts offers
    counts: Annotated[Any, i8, "T"]
    own: Annotated[Any, i8, "memory"]            # what a manager remembers of each request
    offered: Annotated[Any, i8, "n"]             # chunks of a request that have been offered; before the step under way
    begun: Annotated[Any, i8, "n"]
    freed: Annotated[Any, i8, 1]


class TierVerbs(NamedTuple):
    """What the evict policy of a tier is told and asked."""

    insert: Annotated[Any, contract.INSERT]
    touch: Annotated[Any, contract.TOUCH]
    remove: Annotated[Any, contract.REMOVE]
    victim: Annotated[Any, contract.VICTIM]
    score: Annotated[Any, contract.SCORE]


TIERS = signature(TierTables)
tiers_at = tables_at(TIERS)
as_change, as_victim = function_at(contract.INSERT), function_at(contract.VICTIM)
as_score = function_at(contract.SCORE)
INSERT, TOUCH, REMOVE, VICTIM, SCORE = range(5)
F_SIZE, F_RELOAD, F_LAST_USE, F_NEXT_USE, F_USES, F_ARRIVED, F_BORN, F_DEPTH = (
    list(contract.FACTS).index(name)
    for name in ("size", "reload_ns", "last_use", "next_use", "uses", "arrived", "born", "depth")
)


@kernel
def tell(t: TierTables, tier: int, verb: int, chunk: int, key: float) -> None:
    """The policy of a tier is told of a chunk."""
    at = t.verbs[tier, verb]
    as_change(at[0], at[1])(t.state[tier], t.keys[tier], chunk, 1, key)


@kernel
def hold(t: TierTables, tier: int, chunk: int, more: int) -> None:
    """One copy more, or (-1) less, is under way of the chunk, which may not leave the tier while there are any."""
    t.copies[tier, chunk] += more
    t.held[tier, chunk] = t.copies[tier, chunk] > 0


@kernel
def use(t: TierTables, place: int) -> int:
    """The chunk at this place of the requests is used now; its number."""
    chunk = int(t.chunk[place])
    t.latest[chunk] = place
    t.uses[chunk] += 1
    if t.uses[chunk] == 1:
        t.born[chunk] = t.turn[place]
    return chunk


@kernel
def key_of(t: TierTables, tier: int, chunk: int) -> float:
    """The score of a chunk; 0 where the policy has none.  Time is the place in all requests' chunks: of uses, which go tail
    first, that in their order; of the next use that at which a look-up comes upon it, which goes head first.
    """
    row = t.tier[tier]
    if row.scored == 0:
        return 0.0
    facts, coming = t.facts, t.next_use[t.latest[chunk]]
    facts[F_SIZE], facts[F_RELOAD] = t.bytes[1], row.reload
    facts[F_LAST_USE], facts[F_NEXT_USE] = t.turn[t.latest[chunk]], coming if coming >= 0 else math.inf
    facts[F_DEPTH] = t.depth[chunk]
    facts[F_USES], facts[F_ARRIVED], facts[F_BORN] = t.uses[chunk], t.entered[chunk], t.born[chunk]
    at = t.verbs[tier, SCORE]
    return float(as_score(at[0], at[1])(facts, t.params[tier]))


@kernel
def depth_of(t: TierTables, e: int, chunk: int) -> int:
    """The nearest tier of the engine that holds the chunk; -1: none does."""
    for d in range(t.chain.shape[1]):
        if t.chain[e, d] >= 0 and t.where[t.chain[e, d], chunk] == READY:
            return d
    return -1


@kernel
def look_up(t: TierTables, requests: RequestTable, e: int, r: int, there: int) -> int:
    """How many leading tokens of request r the device, which has `there`, and the chain of engine e hold together."""
    first, piece = requests.start[r], requests.piece[0]
    k = there // piece
    while (k + 1) * piece <= requests.known[r] and depth_of(t, e, t.chunk[first + k]) >= 0:
        k += 1
    return int(max(k * piece, there))


@outlined
def use_leading(t: TierTables, requests: RequestTable, e: int, r: int, tokens: int) -> None:
    """The chunks of so many leading tokens of request r are used, tail first, wherever they are."""
    base = requests.start[r]
    if t.chain[e, 0] < 0:
        return
    for k in range(min(tokens, requests.known[r]) // requests.piece[0] - 1, -1, -1):
        chunk = use(t, base + k)
        for d in range(t.chain.shape[1]):
            tier = t.chain[e, d]
            if tier >= 0 and t.where[tier, chunk] != ABSENT:
                tell(t, tier, TOUCH, chunk, key_of(t, tier, chunk))


@outlined
def put(t: TierTables, e: int, depth: int, chunk: int, state: int, now: int) -> bool:
    """The chunk is in a tier from now on (READY), or on its way there (COMING); False: all that it holds must stay."""
    d, entered = depth, False
    while True:
        tier = t.chain[e, d]
        row, out = t.tier[tier], -1
        if row.used >= row.capacity:
            at = t.verbs[tier, VICTIM]
            if row.capacity > 0:
                out = as_victim(at[0], at[1])(t.state[tier], t.keys[tier], chunk, 1, t.held[tier])
            if out < 0:
                row.declined += 1
                return entered
            tell(t, tier, REMOVE, out, 1.0)
            t.where[tier, out] = ABSENT
            row.used -= 1
            row.evicted += 1
        t.entered[chunk] = t.turn[t.latest[chunk]]
        tell(t, tier, INSERT, chunk, key_of(t, tier, chunk))
        t.where[tier, chunk] = state
        row.used += 1
        row.peak = max(row.peak, row.used)
        row.stored += 1
        if entered:
            hold(t, tier, chunk, 1)
            x = send(t, SINK, e, d, t.down[e, d - 1], t.bytes[1], now)
            x.first = chunk
        entered, d = True, d + 1
        if out < 0 or d >= t.chain.shape[1] or t.chain[e, d] < 0 or t.where[t.chain[e, d], out] != ABSENT:
            return True
        chunk, state = out, COMING


@kernel
def send(t: TierTables, kind: int, e: int, d: int, way: int, size: float, now: int) -> Any:
    """A copy of so many bytes joins the queue of its way; its row, in which what it carries is still to be said."""
    t.spare[0] -= 1
    number = t.spare[1 + t.spare[0]]
    x, w = t.transfer[number], t.way[way]
    x.next, x.kind, x.engine, x.depth, x.way, x.bytes = 0, kind, e, d, way, size * w.wire
    if w.last:
        t.transfer[w.last - 1].next = number + 1
    else:
        w.first, w.begins, w.since = number + 1, now + w.latency, now
    w.last = number + 1
    return x


@kernel
def pass_on(t: TierTables, e: int, d: int, chunk: int, now: int) -> None:
    """A chunk that has come into a tier goes on to the next one, where it is to be in all."""
    below = t.chain[e, d + 1] if d + 1 < t.chain.shape[1] else -1
    if t.when[0] == WRITE_ALL and below >= 0 and t.where[below, chunk] == ABSENT and put(t, e, d + 1, chunk, COMING, now):
        hold(t, below, chunk, 1)
        x = send(t, SINK, e, d + 1, t.down[e, d], t.bytes[1], now)
        x.first = chunk


@outlined
def load(t: TierTables, requests: RequestTable, e: int, row: Any, now: int) -> int:
    """What a scheduler has sent for, (request, first token, end): copies begin; how many there are."""
    r, piece = row[0], requests.piece[0]
    base, copies = requests.start[r], 0
    first, end = row[1] // piece, (row[2] + piece - 1) // piece
    use_leading(t, requests, e, r, end * piece)
    for k in range(first, end):
        chunk = t.chunk[base + k]
        d = depth_of(t, e, chunk)
        t.mark[base + k] = 1 + d
        if d >= 0:
            hold(t, t.chain[e, d], chunk, 1)
            t.tier[t.chain[e, d]].loaded += 1
    for d in range(t.chain.shape[1]):
        tokens = 0
        for k in range(first, end):
            if t.mark[base + k] == 1 + d:
                tokens += min(row[2], (k + 1) * piece) - max(row[1], k * piece)
        if tokens > 0:
            copies += 1
            x = send(t, LOAD, e, d, t.out_of[e, d], tokens * t.bytes[0], now)
            x.request, x.first, x.end = r, first, end
    t.pending[r] = copies
    return copies


@outlined
def fetch(t: TierTables, e: int, row: Any, source: int, now: int) -> None:
    """Tokens of a prompt that another engine has computed, (request, first token, end), begin to come."""
    x = send(t, HAND, e, 0, t.hand[source, e], (row[2] - row[1]) * t.bytes[0], now)
    x.request, x.first, x.end = row[0], 0, 0
    t.pending[row[0]] = 1


@outlined
def offer(t: TierTables, requests: RequestTable, step: StepTable, e: int, now: int) -> None:
    """The step that is over has completed chunks: those that the nearest tier is to have are on their way."""
    piece, tier = requests.piece[0], t.chain[e, 0]
    if tier < 0 or t.when[0] == NOTHING or t.when[0] == WRITE_BACK:
        return
    for i in range(step.word[told.N_STEP]):
        r = step.request[i]
        upto = min(step.before[i] + step.tokens[i], requests.known[r])
        first, end, tokens = step.before[i] // piece, upto // piece, 0
        base = requests.start[r]
        for k in range(end - 1, first - 1, -1):
            chunk = use(t, base + k)
            wanted = t.when[0] != SELECTIVE or t.uses[chunk] > 1
            if wanted and t.mark[base + k] == 0 and t.where[tier, chunk] == ABSENT and put(t, e, 0, chunk, COMING, now):
                hold(t, tier, chunk, 1)
                t.mark[base + k] = 1
                tokens += piece
        if tokens > 0:
            x = send(t, STORE, e, 0, t.into[e, 0], tokens * t.bytes[0], now)
            x.request, x.first, x.end = r, first, end


@outlined
def save(t: TierTables, requests: RequestTable, step: StepTable, e: int, each: int, now: int) -> None:
    """Chunks that the device has given up, of `each` blocks, go to the nearest tier where the chain does not hold them."""
    tier = t.chain[e, 0]
    if tier < 0 or t.when[0] != WRITE_BACK:
        return
    for i in range(min(step.word[told.N_EVICTED], step.evicted.size)):
        name = step.evicted[i]
        chunk = name // each
        gone = name >= 0 and name % each == each - 1 and t.where[tier, chunk] == ABSENT and depth_of(t, e, chunk) < 0
        if gone and put(t, e, 0, chunk, COMING, now):
            hold(t, tier, chunk, 1)
            x = send(t, SINK, e, 0, t.into[e, 0], t.bytes[1], now)
            x.first = chunk


@kernel
def pop(t: TierTables, way: int, now: int) -> Any:
    """The first copy of a way has ended, and the next one begins: (kind, engine, depth, request, first, end) of the former."""
    w = t.way[way]
    number = w.first - 1
    x = t.transfer[number]
    w.bytes += x.bytes
    w.first = x.next
    if x.next:
        w.begins = now + w.latency
    else:
        w.last, w.begins = 0, NEVER
        w.busy += now - w.since
    t.spare[1 + t.spare[0]] = number  # what follows may take the row again
    t.spare[0] += 1
    return x.kind, x.engine, x.depth, x.request, x.first, x.end


@outlined
def arrive_there(t: TierTables, requests: RequestTable, way: int, now: int) -> int:
    """The first copy of a way has ended, and the next one begins; the request that has all it waited for, -1: none."""
    kind, e, d, r, first, end = pop(t, way, now)
    tier, base = t.chain[e, d], requests.start[r]
    if kind == SINK:
        t.where[tier, first] = READY
        hold(t, tier, first, -1)
        pass_on(t, e, d, first, now)
        return -1
    for k in range(end - 1, first - 1, -1):
        chunk = t.chunk[base + k]
        if t.mark[base + k] == 1 + d:
            t.mark[base + k] = 0
            hold(t, tier, chunk, -1)
            if kind == STORE:
                t.where[tier, chunk] = READY
                pass_on(t, e, d, chunk, now)
            elif d > 0 and t.where[t.chain[e, 0], chunk] == ABSENT:
                put(t, e, 0, chunk, READY, now)  # it has come through the nearest tier, and stays there
    if kind == STORE:
        return -1
    t.pending[r] -= 1
    return int(r) if t.pending[r] == 0 else -1


@kernel
def next_copy(t: TierTables) -> int:
    """When the next copy begins to flow, ns; NEVER: none waits to."""
    time = NEVER
    for way in range(t.way.size):
        time = min(time, t.way[way].begins)
    return time
