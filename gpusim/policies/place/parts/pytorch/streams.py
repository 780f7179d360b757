"""Blocks used on other streams: what they wait for once they are freed, and when that is noticed.

An event is recorded on each such stream, and a block's free is complete when all its events have finished.  Work of a
stream finishes at once, unless the stream is held (command HOLD): then at UNHOLD, or when an event of it is waited for.
PyTorch looks at the streams in the order of a hash table; here it is that of their first use.

Events are nodes (block, ticket, next) in one queue per stream; so are the frees that a capture puts off.
"""

from __future__ import annotations

from gpusim.base import bits
from gpusim.base.compiled import outlined
from gpusim.policies.compiled import I64, helper
from gpusim.policies.far import far
from gpusim.policies.place.parts import arena
from gpusim.policies.place.parts.bins import LEFT, NEXT
from gpusim.policies.place.parts.pytorch.blocks import complete_later
from gpusim.policies.place.parts.pytorch.layout import (
    CAPTURED,
    DEFERRED,
    DONE,
    FIRST_STREAM,
    HANDLE,
    HEAD,
    HELD_BACK,
    ISSUED,
    MAX_STREAMS,
    MAX_WAITING,
    PRIVATE,
    STREAM_WORDS,
    STREAMS,
    SYNCS,
    TAIL,
    USED,
    WAITING,
    capturing,
    pool_of,
)

BLOCK, TICKET = 0, 1  # words of an event; of a capture's note: the block and the streams used during the capture


@outlined
def slot_of(S: I64, stream: int) -> int:
    """The number of this stream among those that blocks of others were used on."""
    for k in range(S[STREAMS]):
        if S[FIRST_STREAM + k * STREAM_WORDS + HANDLE] == stream:
            return k
    if S[STREAMS] < MAX_STREAMS:
        S[STREAMS] += 1
        S[FIRST_STREAM + (S[STREAMS] - 1) * STREAM_WORDS + HANDLE] = stream
    return S[STREAMS] - 1


@helper
def record_of(slot: int) -> int:
    return FIRST_STREAM + slot * STREAM_WORDS


@outlined
def hold(S: I64, stream: int, held: int) -> None:
    st = record_of(slot_of(S, stream))
    S[st + HELD_BACK] = held
    if held == 0:
        S[st + DONE] = S[st + ISSUED]


# --- use --------------------------------------------------------------------------------------------------------------


@outlined
def note_of(S: I64, p: int) -> int:
    """What a capture noted about block p, or 0."""
    n = S[CAPTURED]
    while n != 0 and S[n + BLOCK] != p:
        n = S[n + NEXT]
    return n


@far
def use(S: I64, p: int, stream: int) -> int:
    """record_stream, of another stream than the block's own."""
    bit = 1 << slot_of(S, stream)
    S[p + LEFT] = USED - ((USED - S[p + LEFT]) | bit)
    if capturing(S):
        n = note_of(S, p)
        if n == 0:
            n = arena.take_node(S)
            S[n + BLOCK], S[n + TICKET], S[n + NEXT] = p, 0, S[CAPTURED]
            S[CAPTURED] = n
            S[WAITING] += 1
        S[n + TICKET] |= bit
    return 0


@outlined
def forget_capture(S: I64, p: int) -> int:
    """The streams on which block p was used during a capture; the note is dropped."""
    before, n = 0, S[CAPTURED]
    while n != 0 and S[n + BLOCK] != p:
        before, n = n, S[n + NEXT]
    if n == 0:
        return 0
    if before != 0:
        S[before + NEXT] = S[n + NEXT]
    else:
        S[CAPTURED] = S[n + NEXT]
    found = S[n + TICKET]
    arena.give_node(S, n)
    S[WAITING] -= 1
    return found


# --- events -----------------------------------------------------------------------------------------------------------


@outlined
def insert_events(S: I64, p: int) -> None:
    """An event on each stream that freed block p was used on; the set of streams is empty from now on."""
    used = USED - S[p + LEFT]
    count = 0
    while used != 0:
        st = record_of(bits.lowest(used))
        used &= used - 1
        S[st + ISSUED] += 1
        if S[st + HELD_BACK] == 0:
            S[st + DONE] = S[st + ISSUED]
        n = arena.take_node(S)
        S[n + BLOCK], S[n + TICKET], S[n + NEXT] = p, S[st + ISSUED], 0
        if S[st + HEAD] == 0:
            S[st + HEAD] = n
        else:
            S[S[st + TAIL] + NEXT] = n
        S[st + TAIL] = n
        count += 1
    S[p + LEFT] = USED - count
    S[WAITING] += count
    if count == 0:
        complete_later(S, p)


@far
def free_used(S: I64, p: int) -> int:
    """Freed block p was used on other streams."""
    if S[WAITING] + MAX_STREAMS > S[MAX_WAITING]:
        wait_for_all(S, 0)  # the table has no room for more
    if capturing(S):
        n = arena.take_node(S)
        S[n + BLOCK], S[n + NEXT] = p, S[DEFERRED]
        S[DEFERRED] = n
        S[WAITING] += 1
    else:
        if S[CAPTURED] != 0:
            forget_capture(S, p)
        insert_events(S, p)
    return 0


@helper
def insert_deferred(S: I64) -> None:
    """After a capture: the frees that it put off, without the streams that were used during it."""
    n = S[DEFERRED]
    S[DEFERRED] = 0
    while n != 0:
        p, after = S[n + BLOCK], S[n + NEXT]
        arena.give_node(S, n)
        S[WAITING] -= 1
        S[p + LEFT] = USED - ((USED - S[p + LEFT]) & ~forget_capture(S, p))
        insert_events(S, p)
        n = after


@helper
def finished(S: I64, p: int) -> None:
    """One event less for block p to wait for."""
    S[p + LEFT] += 1
    S[WAITING] -= 1
    if S[p + LEFT] == USED:
        complete_later(S, p)


@far
def process(S: I64) -> int:
    """Complete the frees of blocks whose events have finished: at the start of every request but those of a capture."""
    insert_deferred(S)
    for k in range(S[STREAMS]):
        st = record_of(k)
        n = S[st + HEAD]
        while n != 0 and S[n + TICKET] <= S[st + DONE]:
            S[st + HEAD] = S[n + NEXT]
            p = S[n + BLOCK]
            arena.give_node(S, n)
            finished(S, p)
            n = S[st + HEAD]
    return 0


@outlined
def wait_for_all(S: I64, private: int) -> None:
    """Wait for all events and complete the frees; private != 0: only those of blocks of this private pool."""
    S[SYNCS] += 1
    insert_deferred(S)
    for k in range(S[STREAMS]):
        st = record_of(k)
        before, n = 0, S[st + HEAD]
        while n != 0:
            p, after = S[n + BLOCK], S[n + NEXT]
            if private != 0 and S[pool_of(S, p) + PRIVATE] != private:
                before = n
            else:
                S[st + DONE] = max(S[st + DONE], S[n + TICKET])
                if before != 0:
                    S[before + NEXT] = after
                else:
                    S[st + HEAD] = after
                if after == 0:
                    S[st + TAIL] = before
                arena.give_node(S, n)
                finished(S, p)
            n = after
