"""Experts of a model that does not fit the GPU: which are there, which come over the link, which the CPU computes.

A unit is one expert of one layer.  The caches are tiers (`tiers`), one for each layer or one for all, and a place is a use of
an expert by a layer at work; an evict policy is told and asked as a tier's is.  A layer at work is a *turn*:

    gate   the turn's plain work is done: attention, what lies between this layer and the one before, and the gate
    here   experts in the cache are computed one after the other
    late   so are those that a guess has sent for, each when it has come
    absent copies begin at the gate, in order, and each expert is computed when it has come; or the CPU computes it

An expert that a turn uses, or is guessed to use, stays until the turn is over.  One for which the cache has no room is copied
into one of two buffers.
Guesses are copied in their order when the link has nothing else to do, if their cache has room; one whose turn is over is
dropped.
"""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import numpy as np
from numba import types

from gpusim.base.compiled import by_pointer, entry, kernel, outlined
from gpusim.base.tables import record, signature
from gpusim.engine.serving.tiers import ABSENT, READY, TIERS, TOUCH, TierTables, key_of, put, tell, use

i4, i8, u1 = np.int32, np.int64, np.uint8

TURN = record(
    [("use", i8), ("guess", i8),     # its first use, and its first guess; those of the next turn end them
     ("layer", i8),                  # among the layers with experts
     ("plain", i8),                  # ns of the copy of its plain weights, which its work waits for; 0: they are there
     ("before", i8), ("after", i8),  # ns of plain work before the gate, and behind the experts
     ("ends", i8)]                   # 1 + the pass that ends with it, 0: none
)  # fmt: skip

# Words: experts of a layer; ns of a copy; whether copies go on while the GPU computes; whether the CPU may compute.
EXPERTS, COPY, OVERLAP, CPU, WORDS = range(5)
# Counts, of uses and of guesses, and ns of the GPU at work, of its waits for the link and for the CPU, and of the link at work.
(
    HERE, LATE, ABSENT_USES, ON_CPU, COPIES, GUESSED, GUESSED_RIGHT, NO_ROOM, GPU_NS, LINK_WAIT, CPU_WAIT, LINK_NS, CPU_NS,
    COUNTS,
) = range(14)  # fmt: skip
NAMES = (
    "here", "late", "absent", "on_cpu", "copies", "guessed", "guessed_right", "no_room", "gpu_ns", "link_wait_ns",
    "cpu_wait_ns", "link_ns", "cpu_ns",
)  # fmt: skip


@by_pointer
class ExpertTables(NamedTuple):
    """Turns in order, with one row more for the ends of lists; U units, of which place u < U names unit u."""

    turn: Annotated[Any, TURN, "turns"]
    tokens: Annotated[Any, i8, "uses"]       # of each use
    guess: Annotated[Any, i4, "guesses"]     # units
    wanted: Annotated[Any, i8, "guesses"]    # the turn that a guess is for
    issued: Annotated[Any, i8, "guesses"]    # ns, written at its gate
    gpu_ns: Annotated[Any, i8, "sizes"]      # of an expert, by tokens
    cpu_ns: Annotated[Any, i8, "sizes"]
    ready: Annotated[Any, i8, "units"]       # ns at which it has come
    marked: Annotated[Any, u1, "units"]      # a guess has sent for it, and nothing has used it yet
    found: Annotated[Any, u1, "widest"]      # of each use of the turn: HERE, LATE, ABSENT_USES
    ends: Annotated[Any, i8, "passes"]       # ns
    word: Annotated[Any, i8, WORDS]
    count: Annotated[Any, i8, COUNTS]


EXPERT_TABLES = signature(ExpertTables)


@kernel
def cache_of(t: TierTables, x: ExpertTables, unit: int) -> int:
    """The cache of the unit's layer."""
    return int(t.chain[unit // x.word[EXPERTS], 0])


@kernel
def fetch(t: TierTables, x: ExpertTables, unit: int, ends: int) -> bool:
    """Room is made for the unit, which has come at `ends`; False: all that its cache holds must stay."""
    if not put(t, unit // x.word[EXPERTS], 0, unit, READY, 0):
        x.count[NO_ROOM] += 1
        return False
    x.ready[unit] = ends
    t.held[cache_of(t, x, unit), unit] = 1
    return True


@outlined
def send_guesses(t: TierTables, x: ExpertTables, g: int, first: int, gate: int, link: int) -> tuple[int, int]:
    """Guesses from `first` on whose copies begin before the gate of turn g: (the first that has not, when the link is free)."""
    while first < x.turn[g].guess:
        ends, unit = max(link, x.issued[first]) + x.word[COPY], x.guess[first]
        if ends - x.word[COPY] >= gate:
            break
        if x.wanted[first] >= g and t.where[cache_of(t, x, unit), unit] == ABSENT and fetch(t, x, unit, ends):
            x.marked[unit] = 1
            x.count[GUESSED] += 1
            x.count[LINK_NS] += x.word[COPY]
            link = ends
        first += 1
    return first, link


@kernel
def look(t: TierTables, x: ExpertTables, g: int, gate: int) -> None:
    """Where the experts of the turn are at its gate; those in the cache stay until it is over."""
    first, units = x.turn[g].use, x.ready.size
    for i in range(first, x.turn[g + 1].use):
        unit = use(t, units + i)
        tier = cache_of(t, x, unit)
        if t.where[tier, unit] == ABSENT:
            x.found[i - first] = ABSENT_USES
            x.count[ABSENT_USES] += 1
            continue
        t.held[tier, unit] = 1
        tell(t, tier, TOUCH, unit, key_of(t, tier, unit))
        x.found[i - first] = HERE if x.ready[unit] <= gate else LATE
        x.count[x.found[i - first]] += 1
        x.count[GUESSED_RIGHT] += x.marked[unit]
        x.marked[unit] = 0


@outlined
def compute(t: TierTables, x: ExpertTables, g: int, gate: int, link: int) -> tuple[int, int]:
    """The experts of the turn: (when all have been computed, when the link is free)."""
    first, end, units = x.turn[g].use, x.turn[g + 1].use, x.ready.size
    gpu, cpu, last, before_last = gate, gate, gate, gate
    for kind in range(HERE, ABSENT_USES + 1):
        for i in range(first, end):
            if x.found[i - first] != kind:
                continue
            unit, tokens = int(t.chunk[units + i]), x.tokens[i]
            comes = gpu
            if kind == LATE:
                comes = x.ready[unit]
            if kind == ABSENT_USES:
                if x.word[CPU] > 0 and x.cpu_ns[tokens] < x.word[COPY] + x.gpu_ns[tokens]:
                    cpu += x.cpu_ns[tokens]
                    x.count[ON_CPU] += 1
                    x.count[CPU_NS] += x.cpu_ns[tokens]
                    continue
                comes = max(link, gate if x.word[OVERLAP] > 0 else gpu)
                kept = fetch(t, x, unit, comes + x.word[COPY])
                if not kept:
                    comes = max(comes, before_last)
                comes += x.word[COPY]
                link = comes
                x.count[COPIES] += 1
                x.count[LINK_NS] += x.word[COPY]
            begins = max(gpu, comes)
            x.count[LINK_WAIT] += begins - gpu
            x.count[GPU_NS] += x.gpu_ns[tokens]
            gpu = begins + x.gpu_ns[tokens]
            if kind == ABSENT_USES and not kept:
                before_last, last = last, gpu
    x.count[CPU_WAIT] += max(cpu - gpu, 0)
    return max(gpu, cpu), link


@entry(types.int64(TIERS, types.Array(types.int64, 1, "C"), types.int64))
def fill(t: TierTables, units: Any, experts: int) -> int:
    """These units are in their caches before all begins."""
    for unit in units:
        put(t, unit // experts, 0, unit, READY, 0)
    return 0


@entry(types.int64(TIERS, EXPERT_TABLES))
def replay(t: TierTables, x: ExpertTables) -> int:
    """All turns; ns at which the last one ends."""
    clock, link, guess, experts = 0, 0, 0, x.word[EXPERTS]
    for g in range(x.turn.size - 1):
        turn = x.turn[g]
        if turn.plain > 0:
            link = max(clock, link) + turn.plain
            x.count[LINK_WAIT] += link - clock
            x.count[LINK_NS] += turn.plain
            clock = link
        gate = clock + turn.before
        guess, link = send_guesses(t, x, g, guess, gate, link)
        for i in range(turn.guess, x.turn[g + 1].guess):
            x.issued[i] = gate
            if t.where[cache_of(t, x, x.guess[i]), x.guess[i]] != ABSENT:
                t.held[cache_of(t, x, x.guess[i]), x.guess[i]] = 1
        look(t, x, g, gate)
        clock, link = compute(t, x, g, gate, link)
        for unit in range(turn.layer * experts, (turn.layer + 1) * experts):
            t.held[cache_of(t, x, unit), unit] = 0
        clock += turn.after
        x.count[GPU_NS] += turn.before + turn.after
        if turn.ends > 0:
            x.ends[turn.ends - 1] = clock
    return int(clock)
