"""No allocator: every tensor is a cudaMalloc and a cudaFree of its own, at the lowest address with enough room.

Nothing is cached, so nothing is held but what is in use, and the host pays for a device call each time.

align  bytes that addresses and sizes are multiples of
"""

from __future__ import annotations

from gpusim.policies.compiled import F64, I64, helper, verb
from gpusim.policies.contract import ALLOC, CALLS, FREE, HELD, LARGEST, RELEASE
from gpusim.policies.place.parts import address_index as fits
from gpusim.policies.place.parts import arena
from gpusim.policies.place.parts.arena import CALL, SIZE
from gpusim.policies.place.parts.bins import ADDR

PARAMS = {"align": 512}


def state(capacity: int, n_units: int, max_live: int, params: F64) -> I64:
    align = max(1, int(params[0]))
    return arena.new(capacity, n_units, 2 * max_live + 1, fits.WORDS, align, align)


@helper
def called(S: I64, addr: int, size: int) -> None:
    S[CALL], S[CALL + 1] = addr, size
    S[CALLS] = 1
    S[HELD] += size


@verb(ALLOC)
def alloc(S: I64, unit: int, size: int, stream: int) -> int:
    S[CALLS] = 0
    if size == 0:
        return arena.nothing(S)
    need = arena.rounded(S, size)
    p = fits.lowest(S, need)
    if p == 0:
        if arena.room(S) < need:
            return -1
        p = arena.cut_tail(S, need)
    elif arena.within(S, p, need):
        p = arena.cut(S, p, need, fits.drop, fits.moved)
    else:
        return -1
    called(S, S[p + ADDR], S[p + SIZE])
    return arena.hand(S, unit, p)


@verb(FREE)
def free(S: I64, unit: int, stream: int) -> int:
    p = arena.taken(S, unit)
    if p != 0:
        called(S, S[p + ADDR], -S[p + SIZE])
        arena.give_back(S, p, fits.add, fits.drop, fits.moved)
    return 0


@verb(RELEASE)
def release(S: I64, bytes: int) -> int:
    S[CALLS] = 0
    return 0


@verb(LARGEST)
def largest(S: I64) -> int:
    return 0
