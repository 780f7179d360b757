"""Page-grain replay: how often would this sequence of accesses miss in a memory of this size, under this policy?

No time, no links, no allocator: one loop over the requests that drives the policy's verbs as the timed engine does.
Here a request costs a few nanoseconds, so the loop is compiled once per policy with the verbs inlined, and kept on
disk; when all pages have one size it counts pages, in tables of half the width, or asks the policy's verb `replay`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from types import FunctionType
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from numba import types
from numba.core import config

from gpusim.base.compiled import inlined, kept
from gpusim.base.compiled.entries import stamp
from gpusim.base.errors import TraceError
from gpusim.policies import pages
from gpusim.policies.compiled import F64, I64, U8
from gpusim.policies.contract import FACTS, REPLAY
from gpusim.policies.forms import EvictPolicy
from gpusim.trace.reuse import next_uses

I32 = pages.Requests
_I32 = types.Array(types.int32, 1, "C")

USES, ARRIVED, BORN = range(3)  # what a score may ask about a page
F_SIZE, F_RELOAD, F_LAST_USE, F_NEXT_USE, F_USES, F_ARRIVED, F_BORN = (
    list(FACTS).index(name) for name in ("size", "reload_ns", "last_use", "next_use", "uses", "arrived", "born")
)


@dataclass(frozen=True)
class MissCounts:
    """What one replay counted; bytes are those of the misses, brought in from below."""

    requests: int
    misses: int
    hits: int
    evictions: int
    bytes: int


def replay(
    requests: npt.NDArray[np.integer[Any]],
    sizes: int | npt.NDArray[np.integer[Any]],
    capacity: int,
    policy: EvictPolicy,
    seed: int = 0,
) -> MissCounts:
    """Run the requests through a memory of `capacity` bytes that is empty at first.

    requests  ids of pages in order of access, dense: 0 <= id < n
    sizes     bytes of every page, or int64[n] bytes of each page
    policy    from `registry.get("evict", ...)`, of form ordered or score

    A score sees the index of the request as time, and a link that moves one byte per nanosecond.
    PolicyError when the policy needs the timed engine or finds no victim; TraceError for an id or size out of range.
    """
    ids, n_units, table, room = _checked(requests, sizes, capacity)
    if policy.form not in ("none", "ordered", "score"):
        raise policy.error(f"cannot replay pages: it needs the timed engine (form '{policy.form}')")
    next_use = next_uses(ids, n_units) if policy.oracle else np.empty(0, np.int32)
    if policy.replay is not None and np.ndim(sizes) == 0:
        room = min(room, n_units)
        misses = int(_whole(policy.replay)(ids, n_units, room, policy.params, seed))
        return MissCounts(len(ids), misses, len(ids) - misses, max(0, misses - room), misses * int(sizes))
    verbs: Any = getattr(policy.module, "horizon", policy)
    scored = policy.form == "score" and verbs is policy
    if verbs is policy:
        S, X = policy.state(n_units, room, policy.params, seed)
        if len(table) == 1 and policy.entry.builtin and not config.DISABLE_JIT:
            S = S.astype(np.int32)  # pages count as one byte, so that every number of a built-in fits
    else:
        S, X = verbs.state(ids, n_units)
    flags = {
        "UNIFORM": len(table) == 1, "SCORED": scored, "FORESIGHT": policy.oracle,
        "TOUCHES": policy.touches or policy.oracle,
    }  # fmt: skip
    given = PageReplay(
        requests=ids, next_use=next_use, sizes=table, capacity=room, resident=np.zeros(n_units, np.uint8),
        locked=np.broadcast_to(np.zeros(1, np.uint8), n_units),  # nothing is: one byte that stays in the nearest cache
        per_unit=np.zeros((3, n_units if scored else 1)), facts=np.zeros(len(FACTS)), params=policy.params,
    )  # fmt: skip
    answer = _specialised(policy, verbs, flags)(given, S, X)
    misses, evictions, brought, stuck = (int(n) for n in answer)
    if stuck >= 0:
        raise policy.error(f"found no victim for request {stuck}")
    return MissCounts(len(ids), misses, len(ids) - misses, evictions, brought * (1 if np.ndim(sizes) else int(sizes)))


def _checked(requests: Any, sizes: Any, capacity: int) -> tuple[I32, int, I64, int]:
    """(ids, number of pages, sizes, capacity), the last two in pages when all pages have one size."""
    if len(requests) > 2**31 - 1:
        raise TraceError(f"{len(requests)} requests are too many for one replay", hint="split them")
    # One pass: as an unsigned number an id below 0 is the highest.
    highest = int(requests.view(f"u{requests.dtype.itemsize}").max()) if len(requests) else 0
    table = np.atleast_1d(np.asarray(sizes, np.int64))
    n_units = len(table) if np.ndim(sizes) else highest + 1
    if highest >= min(n_units, 2**28):
        wrong = int(requests.min()) if requests.min() < 0 else highest
        raise TraceError(f"page id {wrong} is out of range", hint="ids are dense, from 0")
    if table.min() <= 0:
        raise TraceError(f"a page of {table.min()} bytes")
    if table.max() > capacity:
        raise TraceError(f"a page of {table.max()} bytes does not fit into {capacity} bytes")
    ids = np.ascontiguousarray(requests, np.int32)
    if np.ndim(sizes) == 0:
        return ids, n_units, np.ones(1, np.int64), capacity // int(sizes)
    return ids, n_units, table, capacity


# What `_loop` calls and knows as constants; each policy gets a copy of the function with its own.
insert: Any = None
touch: Any = None
remove: Any = None
victim: Any = None
score: Any = None
UNIFORM = SCORED = FORESIGHT = TOUCHES = False


class PageReplay(NamedTuple):
    """What `_loop` replays, R requests for U pages, and what it knows of the pages."""

    requests: I32   # (R,) pages
    next_use: I32   # (R,) the page's next request, empty when nothing asks for it
    sizes: I64      # (U,) bytes; (1,) when all pages have one size, which counts as 1
    capacity: int
    resident: U8    # (U,)
    locked: U8      # (U,)
    per_unit: F64   # (USES, ARRIVED and BORN, U)
    facts: F64      # of the page that a score is asked about
    params: F64


def _loop(run: PageReplay, S: I64, X: F64) -> tuple[int, int, int, int]:
    """(misses, evictions, bytes brought in, -1 or the request for which there was no victim)."""
    requests, next_use, sizes, capacity = run.requests, run.next_use, run.sizes, run.capacity
    resident, locked, per_unit, facts, params = run.resident, run.locked, run.per_unit, run.facts, run.params
    misses = evictions = brought = used = 0
    size, key = 1, 0.0
    for i in range(requests.shape[0]):
        pages.fetch_ahead(resident, requests, i)
        unit = np.int64(requests[i])
        hit = resident[np.uint64(unit)] != 0
        if hit and not TOUCHES:
            continue
        if not UNIFORM:
            size = sizes[unit]
        if FORESIGHT:
            key = float(next_use[i])
        if SCORED:
            per_unit[USES, unit] += 1.0
            if not hit:
                per_unit[ARRIVED, unit] = i
            if per_unit[USES, unit] == 1.0:
                per_unit[BORN, unit] = i
            facts[F_SIZE] = facts[F_RELOAD] = size
            facts[F_LAST_USE] = i
            facts[F_NEXT_USE] = key if key >= 0.0 else np.inf
            facts[F_USES], facts[F_ARRIVED] = per_unit[USES, unit], per_unit[ARRIVED, unit]
            facts[F_BORN] = per_unit[BORN, unit]
            key = score(facts, params)
        if hit:
            touch(S, X, unit, size, key)
            continue
        misses += 1
        while used + size > capacity:
            out = victim(S, X, unit, size, locked)
            if out < 0:
                return misses, evictions, brought, i
            left = 1 if UNIFORM else sizes[out]
            remove(S, X, out, left, 1.0)
            resident[np.uint64(out)] = 0
            used -= left
            evictions += 1
        insert(S, X, unit, size, key)
        resident[np.uint64(unit)] = 1
        used += size
        brought += size
    return misses, evictions, brought, -1


@cache
def _whole(verb: Any) -> Any:
    """The policy's verb `replay`, compiled; a built-in's is compiled here and not when the timed engine imports its file."""
    return verb if hasattr(verb, "py_func") else kept(REPLAY)(verb)


_VERBS = ("insert", "touch", "remove", "victim")
_loops: dict[tuple[Any, ...], Any] = {}


def _specialised(policy: EvictPolicy, verbs: Any, flags: dict[str, bool]) -> Any:
    """`_loop` with this policy's verbs and these constants, compiled, or found on disk."""
    functions = [getattr(verbs, name) for name in _VERBS]
    known = (*(getattr(f, "py_func", f) for f in (*functions, policy.score)), policy.name, *flags.values())
    if known not in _loops:
        own = {n: inlined(f) for n, f in zip(_VERBS, functions, strict=True)}
        function = FunctionType(_loop.__code__, {**globals(), **flags, **own, "score": policy.score}, "_loop")
        # What its files are named by: policies of one name may be others in another process.
        text = "".join(str(int(flag)) for flag in flags.values())
        function.__qualname__ = f"_loop_{policy.name}_{text}_{stamp(function)[:12]}"
        _loops[known] = kept()(function)
    return _loops[known]
