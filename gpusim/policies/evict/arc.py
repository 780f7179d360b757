"""ARC: balances recency (units seen once lately) against frequency (seen twice), guided by the ghosts of what it evicted.

Source: N. Megiddo, D. S. Modha, "ARC: a self-tuning, low overhead replacement cache", FAST 2003, Figure 4.  A unit of s bytes
counts as s of its pages: lists are measured in bytes, the target p (a real number) moves by s times the paper's step, and
so many ghosts are forgotten that |L1| <= c and |L1| + |L2| <= 2c.  Units of one size miss as in libCacheSim.  Those of several
do not: libCacheSim moves p by single bytes, whatever the size, so that its misses depend on the unit that sizes are said in,
and forgets one ghost per eviction.  Locked units are passed over; when all units of the list that should give way are
locked, the other list does.
"""

from __future__ import annotations

import numpy as np

from gpusim.policies import queue
from gpusim.policies.compiled import F64, I64, U8, helper, verb
from gpusim.policies.contract import INSERT, REMOVE, TOUCH, VICTIM
from gpusim.policies.place.parts import sizes

# L1 holds B1 (ghosts) and then T1, L2 holds B2 and then T2, each from the least to the most recently used.
L1, L2 = 0, queue.WORDS
CAPACITY, RETURNS, GHOST_OF, NO_GHOST, SIZES = range(L2 + queue.WORDS, L2 + queue.WORDS + 5)
W = SIZES + sizes.WORDS  # place_of, then sizes, the log of L1, the log of L2
P = 0  # X[P]: target bytes of T1


def state(n_units: int, capacity: int, params: F64, seed: int) -> tuple[I64, F64]:
    length = queue.slots(n_units)
    log = W + 2 * n_units
    S = np.zeros(log + 2 * length, np.int64)
    queue.open_queue(S, L1, log, length)
    queue.open_queue(S, L2, log + length, length)
    S[CAPACITY] = capacity
    S[RETURNS] = -1   # the unit about to be inserted, when it was a ghost of the list S[GHOST_OF]
    S[NO_GHOST] = -1  # the unit about to be evicted, when it shall not be remembered
    sizes.open_sizes(S, SIZES, W + n_units, n_units)
    return S, np.zeros(1)


@helper
def _list_of(S: I64, unit: int) -> int:
    return L1 if abs(queue.get(S, W + unit)) < S[L2 + queue.START] else L2


@helper
def _forget(S: I64, q: int, ghost: int) -> None:
    queue.put(S, W + ghost, 0)
    S[q + queue.GHOST_BYTES] -= sizes.size_of(S, SIZES, ghost)


@helper
def _returns(S: I64, X: F64, unit: int) -> None:
    """A miss on a ghost: move the target towards the list that should have kept it (cases II and III of the paper)."""
    b1, b2 = max(S[L1 + queue.GHOST_BYTES], 1), max(S[L2 + queue.GHOST_BYTES], 1)
    size = sizes.size_of(S, SIZES, unit)
    q = _list_of(S, unit)
    if q == L1:
        X[P] = min(X[P] + max(b2 / b1, 1.0) * size, float(S[CAPACITY]))
    else:
        X[P] = max(X[P] - max(b1 / b2, 1.0) * size, 0.0)
    _forget(S, q, unit)
    S[RETURNS] = unit
    S[GHOST_OF] = q


@helper
def _trim(S: I64, size: int) -> None:
    """Case IV of the paper, for a unit of which no list knows: forget ghosts until it has room in L1 and in the directory."""
    while S[L1 + queue.GHOST_BYTES] > 0 and S[L1 + queue.BYTES] + S[L1 + queue.GHOST_BYTES] + size > S[CAPACITY]:
        _forget(S, L1, queue.oldest_ghost(S, L1, W))
    first = S[L1 + queue.BYTES] + S[L1 + queue.GHOST_BYTES]
    if first + size > S[CAPACITY]:
        return  # units of T1 have to go first
    while S[L2 + queue.GHOST_BYTES] > 0 and first + S[L2 + queue.BYTES] + S[L2 + queue.GHOST_BYTES] + size > 2 * S[CAPACITY]:
        _forget(S, L2, queue.oldest_ghost(S, L2, W))


@verb(INSERT)
def insert(S: I64, X: F64, unit: int, size: int, key: float) -> int:
    if queue.get(S, W + unit) < 0:
        _returns(S, X, unit)
    if S[RETURNS] != unit:
        _trim(S, size)
    q = L2 if S[RETURNS] == unit else L1
    S[RETURNS] = -1
    sizes.note(S, SIZES, unit, size)
    queue.join(S, q, W, unit)
    S[q + queue.BYTES] += size
    return 0


@verb(TOUCH)
def touch(S: I64, X: F64, unit: int, size: int, key: float) -> int:
    if _list_of(S, unit) == L1:
        S[L1 + queue.BYTES] -= size
        S[L2 + queue.BYTES] += size
    queue.join(S, L2, W, unit)
    return 0


@verb(REMOVE)
def remove(S: I64, X: F64, unit: int, size: int, key: float) -> int:
    slot = queue.get(S, W + unit)
    if slot == 0:
        return 0
    q = _list_of(S, unit)
    if slot < 0:
        _forget(S, q, unit)
        return 0
    S[q + queue.BYTES] -= size
    if key != 0.0 and S[NO_GHOST] != unit:
        queue.put(S, W + unit, -slot)
        S[q + queue.GHOST_BYTES] += size
    else:
        queue.put(S, W + unit, 0)
    S[NO_GHOST] = -1
    return 0


@verb(VICTIM)
def victim(S: I64, X: F64, incoming: int, size: int, locked: U8) -> int:
    if queue.get(S, W + incoming) < 0:
        _returns(S, X, incoming)
    returns = S[RETURNS] == incoming
    if not returns:
        _trim(S, size)
    t1, t2 = S[L1 + queue.BYTES], S[L2 + queue.BYTES]
    no_ghost = not returns and t1 + size > S[CAPACITY]  # T1 alone fills L1: its oldest is not remembered
    # REPLACE of the paper.
    from_t1 = t1 > X[P] or (t1 == X[P] and returns and S[GHOST_OF] == L2)
    q = L1 if no_ghost or (t1 > 0 and from_t1) or t2 == 0 else L2
    unit = queue.oldest(S, q, W, locked)
    if unit < 0:
        no_ghost = False
        unit = queue.oldest(S, L1 + L2 - q, W, locked)
    S[NO_GHOST] = unit if no_ghost else -1
    return unit
