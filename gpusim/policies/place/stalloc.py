"""STAlloc: the program is recorded up to the end of one iteration and planned offline; later iterations follow the plan.

The plan gives every recorded tensor a fixed offset in one range, which is taken from the device whole.  In later iterations
the n-th request of a size gets the slot of the n-th of that size in the recorded one, without those still in use (what the
first iteration made to stay).  A request for which there is no slot gets the smallest gap that the plan leaves free over the
life of the request that was recorded in its place; failing that, best fit in a pool behind the range.  Iterations are the
numbered phases of the trace ("step1.fwd"); without them all of it is one.

align      bytes that addresses and sizes are multiples of
iteration  the last one that is recorded, counted from 0

It knows the recorded part before it begins, as a framework does that has run the program before.

Source: arXiv 2507.16274, 2025 (STAlloc).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from gpusim.policies.compiled import F64, I64, helper, verb
from gpusim.policies.contract import ALLOC, BLOCK, CALLS, CAPACITY, FREE, LARGEST, RELEASE, ROUNDED
from gpusim.policies.place.parts import arena, planned
from gpusim.policies.place.parts import size_index as sized
from gpusim.policies.place.parts.packing.buffers import Buffers
from gpusim.policies.place.parts.packing.plan import plan

PARAMS = {"align": 512, "iteration": 0}
KNOWS = "window"

# Words of the table behind the pool's index.
TOP, READY, UNIT, PLAN = range(arena.INDEX + sized.WORDS, arena.INDEX + sized.WORDS + 4)
# end of the planned range; 1 once it is set apart; where the words of the units and of the plan begin
INDEX = PLAN + 1 - arena.INDEX
# Words of a unit: its slot + 1 (or -slot - 1, for the life alone; 0: none), and the pieces that its block is on.
SLOT, FIRST, END = range(3)

NOTHING = np.zeros(0, np.int64)


def prepare(kind: I64, unit: I64, size: I64, iteration: I64, params: F64) -> I64:
    """[number of slots | (offset, size, born, dies) of each | of each unit its slot + 1, -slot - 1 for the life alone, or 0]"""
    rounded = -(-size // max(1, int(params[0]))) * max(1, int(params[0]))
    later = np.flatnonzero(iteration > int(params[1]))
    end = int(later[0]) if len(later) else len(kind)
    slots = np.flatnonzero((kind[:end] == 1) & (rounded[:end] > 0))
    freed = np.full(int(unit.max(initial=-1)) + 1, end)
    gone = np.flatnonzero(kind[:end] == 0)
    freed[unit[gone]] = gone
    born, dies = slots.copy(), freed[unit[slots]]
    again = np.flatnonzero(iteration[slots] == iteration[:end].max(initial=-1))
    if len(later) and len(again):
        # What the iteration leaves behind is there when the next one begins.
        born[dies == end] = np.minimum(born[dies == end], slots[again[0]])
    offset = plan(Buffers(born, dies, rounded[slots]), nodes=4_000, work=0).offset
    of_unit = np.zeros(len(freed), np.int64)
    of_unit[unit[slots]] = np.arange(len(slots)) + 1
    _follow(kind[end:], unit[end:], rounded[end:], iteration[end:], of_unit, again, rounded[slots], dies == end)
    return np.concatenate([[len(slots)], np.stack([offset, rounded[slots], born, dies], axis=1).ravel(), of_unit])


def _follow(
    kind: I64, unit: I64, size: I64, iteration: I64, of_unit: I64, again: I64, slot_size: I64, in_use: npt.NDArray[np.bool_]
) -> None:
    """Give the units of the requests that were not recorded their slots, looking only at what came before each."""
    of_size: dict[int, list[int]] = {}
    for slot in again.tolist():
        of_size.setdefault(int(slot_size[slot]), []).append(slot)
    current, count = -1, 0
    left: dict[int, Iterator[int]] = {}
    for is_alloc, u, bytes, i in zip(kind.tolist(), unit.tolist(), size.tolist(), iteration.tolist(), strict=True):
        if not is_alloc:
            if of_unit[u] > 0:
                in_use[of_unit[u] - 1] = False
            continue
        if i != current:
            current, count, left = i, 0, {b: iter(found) for b, found in of_size.items()}
        if i < 0 or bytes == 0:
            continue
        slot = next((s for s in left.get(bytes, ()) if not in_use[s]), -1)
        if slot >= 0:
            in_use[slot] = True
            of_unit[u] = slot + 1
        elif count < len(again):
            of_unit[u] = -again[count] - 1
        count += 1


def state(capacity: int, n_units: int, max_live: int, params: F64, program: I64 = NOTHING) -> I64:
    align = max(1, int(params[0]))
    slots = int(program[0]) if len(program) else 0
    rows = program[1 : 1 + 4 * slots].reshape(slots, 4)
    of_unit = program[1 + 4 * slots :][:n_units]
    pool = arena.new(capacity, n_units, 2 * max_live + 3, INDEX, align, align)
    S = np.concatenate([pool, np.zeros(3 * n_units, np.int64), planned.build(len(pool) + 3 * n_units, *rows.T)])
    S[UNIT], S[PLAN] = len(pool), len(pool) + 3 * n_units
    S[len(pool) : len(pool) + 3 * len(of_unit) : 3] = of_unit
    S[TOP] = int((rows[:, 0] + rows[:, 1]).max(initial=0))
    return S


@helper
def slot_of(S: I64, words: int, need: int) -> int:
    """The address of the unit's planned slot, or of a gap for its life; -1 when the plan has no room for it."""
    at = S[PLAN]
    slot = S[words + SLOT]
    if slot == 0 or S[READY] == 0 or S[TOP] > S[CAPACITY]:
        return -1
    row = S[at + planned.ROWS] + planned.SLOT * (abs(slot) - 1)
    first, end = S[row + planned.FROM], S[row + planned.TO]
    address = S[row + planned.OFFSET]
    if slot < 0 or S[row + planned.SIZE] != need or not planned.free(S, at, first, end):
        address = planned.gap(S, at, need, abs(slot) - 1, slot < 0)
        if address < 0:
            return -1
        first, end = planned.piece(S, at, address), planned.piece(S, at, address + need)
    planned.mark(S, at, first, end, 1)
    S[words + FIRST], S[words + END] = first, end
    return address


@verb(ALLOC)
def alloc(S: I64, unit: int, size: int, stream: int) -> int:
    S[CALLS] = 0
    if size == 0:
        return arena.nothing(S)
    need = arena.rounded(S, size)
    if S[arena.TAIL] == 0 and 0 < S[TOP] <= S[CAPACITY]:
        arena.cut_tail(S, S[TOP])  # the pool begins behind it
        S[READY] = 1
    words = S[UNIT] + 3 * unit
    address = slot_of(S, words, need)
    if address >= 0:
        arena.cover(S, S[TOP])
        S[BLOCK] = planned.bytes_of(S, S[PLAN], S[words + FIRST], S[words + END])
        S[ROUNDED] += S[BLOCK]
        return address
    return sized.best_fit(S, unit, need)


@verb(FREE)
def free(S: I64, unit: int, stream: int) -> int:
    words, at = S[UNIT] + 3 * unit, S[PLAN]
    first, end = S[words + FIRST], S[words + END]
    if end > 0:
        planned.mark(S, at, first, end, -1)
        S[ROUNDED] -= planned.bytes_of(S, at, first, end)
        S[words + FIRST] = S[words + END] = S[CALLS] = 0
        return 0
    p = arena.taken(S, unit)
    if p != 0:
        arena.give_back(S, p, sized.add, sized.drop, sized.moved)
    return 0


@verb(RELEASE)
def release(S: I64, bytes: int) -> int:
    return arena.lower(S)


@verb(LARGEST)
def largest(S: I64) -> int:
    return max(sized.largest(S), arena.slack(S))
