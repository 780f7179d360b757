"""Private pools (torch.cuda.MemPool, CUDA graphs): their life, and which requests are routed to them."""

from __future__ import annotations

from gpusim.base.compiled import outlined
from gpusim.policies.compiled import I64, helper
from gpusim.policies.place.parts.pytorch import giving_back as cache
from gpusim.policies.place.parts.pytorch import streams
from gpusim.policies.place.parts.pytorch.layout import (
    FIRST_PRIVATE,
    FREEABLE,
    GROWN,
    HOLDERS,
    ID,
    IN_USE,
    MAX_PRIVATE,
    NO_SPLIT,
    ON_OOM,
    OWNED,
    PRIVATE_LARGE,
    PRIVATE_SMALL,
    PRIVATE_WORDS,
    ROUTED,
    ROUTES,
    RULE,
    SPLIT_AGAIN,
    STATE,
    UNUSED,
)


@helper
def slot_record(k: int) -> int:
    return FIRST_PRIVATE + k * PRIVATE_WORDS


@outlined
def find(S: I64, id_: int) -> int:
    """The slot of this pool, or -1."""
    for k in range(MAX_PRIVATE):
        if S[slot_record(k) + STATE] != UNUSED and S[slot_record(k) + ID] == id_:
            return k
    return -1


@outlined
def make(S: I64, id_: int) -> int:
    """The slot of this pool, which is made when it is new, without a holder; -1 when there are too many."""
    k = find(S, id_)
    if k >= 0:
        return k
    for k in range(MAX_PRIVATE):
        private = slot_record(k)
        if S[private + STATE] == UNUSED:
            S[private + STATE], S[private + ID], S[private + HOLDERS] = IN_USE, id_, 0
            S[private + GROWN], S[private + OWNED], S[private + ON_OOM] = 0, 0, 0
            S[private + PRIVATE_SMALL + NO_SPLIT] = S[private + PRIVATE_LARGE + NO_SPLIT] = 0
            return k
    return -1


@outlined
def hold(S: I64, k: int) -> int:
    """One more holder of the pool in slot k; -1 when it has been let go."""
    private = slot_record(k)
    if S[private + STATE] == FREEABLE:
        return -1
    S[private + HOLDERS] += 1
    return 0


@outlined
def route(S: I64, k: int) -> int:
    """Requests go to the pool in slot k from now on."""
    for i in range(S[ROUTED]):
        if S[ROUTES + i] == k:
            return -1
    S[ROUTES + S[ROUTED]] = k
    S[ROUTED] += 1
    return 0


@outlined
def unroute(S: I64, k: int) -> int:
    found = -1
    for i in range(S[ROUTED]):
        if found >= 0:
            S[ROUTES + i - 1] = S[ROUTES + i]
        elif S[ROUTES + i] == k:
            found = i
    if found < 0:
        return -1
    S[ROUTED] -= 1
    return 0


@outlined
def let_go(S: I64, k: int) -> int:
    """One holder less; without any, the pool's memory goes at the next release of the cache."""
    private = slot_record(k)
    if S[private + STATE] != IN_USE:
        return -1
    S[private + HOLDERS] -= 1
    if S[private + HOLDERS] == 0:
        S[private + STATE] = FREEABLE
        if S[RULE] >= SPLIT_AGAIN:  # before, requests that are still routed here go on to get whole blocks
            S[private + PRIVATE_SMALL + NO_SPLIT] = S[private + PRIVATE_LARGE + NO_SPLIT] = 0
    return 0


@outlined
def empty(S: I64, k: int) -> None:
    """torch.cuda.empty_cache() within the pool."""
    private = slot_record(k)
    if S[private + STATE] == FREEABLE:
        streams.wait_for_all(S, private)
        cache.release_private(S, private)
