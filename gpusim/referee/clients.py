"""What part of the time each client of an MPS server has of its multiprocessors, from the starts and ends of kernels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from gpusim.machine.tenancy import BLOCKS, KERNELS, Tenancy
from gpusim.referee.activities import NEVER
from gpusim.trace.trace import I64

F64 = npt.NDArray[np.float64]
_ROUNDING = 1e-4  # ns


class Kernels(NamedTuple):
    """Of a program: when each kernel would be ready but for the launch gap, starts and ends, what it can use, whether its grid
    is resident at once, its priority, and how long it has its program's part until its last blocks have begun, ns."""

    ready: I64
    start: I64
    end: I64
    wants: I64
    whole: I64
    priority: I64
    limit: int
    begins: F64


class TenantPart(NamedTuple):
    """From each time on, ns, what part of the time of its multiprocessors a program has."""

    time: I64
    part: F64


def as_part(changes: Sequence[tuple[int, float]]) -> TenantPart:
    return TenantPart(np.array([time for time, _ in changes], np.int64), np.array([part for _, part in changes]))


class _Present(NamedTuple):
    """What programs run at one moment, by program: how much of each multiprocessor that wants, its place in line, how much of
    it keeps what it has, and of that what was there before."""

    dense: list[float]
    place: list[tuple[int, int]]
    held: list[float]
    older: list[float]


def densities(each: Sequence[Kernels], tenancy: Tenancy) -> list[TenantPart]:
    """MPS: kernels lie evenly over the multiprocessors of their program's cap, the first ones."""
    moments = np.unique(np.concatenate([np.concatenate([k.start, k.end]) for k in each])).tolist()
    found: list[list[tuple[int, float]]] = [[(-1, 1.0)] for _ in each]
    until = [np.full(len(k.start), math.inf) for k in each]
    kept, had, parts = [0.0] * len(each), [0.0] * len(each), [1.0] * len(each)
    i, at, soon = 0, 0, NEVER
    while i < len(moments) or soon < NEVER:
        now = min(moments[i] if i < len(moments) else NEVER, soon)
        i += i < len(moments) and moments[i] == now
        had = [had_one + part * (now - at) for had_one, part in zip(had, parts, strict=True)]
        at = now
        there = [(k.start <= now) & (now < k.end) for k in each]
        begin = [_to_begin(k, on, until[p], had[p], now) for p, (k, on) in enumerate(zip(each, there, strict=True))]
        run = _present(each, there, begin, tenancy, now)
        kept = [min(one, still) for one, still in zip(kept, run.older, strict=True)]
        parts, first = _parts(each, run, kept, tenancy)
        for p, part in enumerate(parts):
            found[p].append((now, part))
        kept = [min(one, has) for one, has in zip(run.held, first, strict=True)]
        soon = NEVER
        if tenancy.yields == BLOCKS and any(dense > 0 and part < 1 for dense, part in zip(run.dense, parts, strict=True)):
            rest = [float((until[p][on & begin[p]] - had[p]).min(initial=math.inf)) for p, on in enumerate(there)]
            ahead = [now + max(1, math.ceil(r / part - _ROUNDING)) for r, part in zip(rest, parts, strict=True)
                     if part > 0 and r < math.inf]  # fmt: skip
            soon = min(ahead, default=NEVER)
    return [as_part(changes) for changes in found]


def _to_begin(k: Kernels, on: npt.NDArray[np.bool_], until: F64, had: float, now: int) -> npt.NDArray[np.bool_]:
    """Which kernels in waves have blocks to begin; those that start now do so when their program has had so much more."""
    starts = on & (k.start == now)
    until[starts] = np.where(np.isinf(until[starts]), had + k.begins[starts], until[starts])
    return np.asarray(on & (k.whole == 0) & (until - had > _ROUNDING))


def _present(
    each: Sequence[Kernels], there: Sequence[npt.NDArray[np.bool_]], begin: Sequence[npt.NDArray[np.bool_]], tenancy: Tenancy,
    now: int,
) -> _Present:  # fmt: skip
    in_order = tenancy.yields in (KERNELS, BLOCKS)
    keeping = [
        on & ((k.whole > 0) | (tenancy.yields == KERNELS) | (to_begin & (tenancy.yields == BLOCKS)))
        for k, on, to_begin in zip(each, there, begin, strict=True)
    ]
    dense, held, older = (
        [min(1.0, float(k.wants[of].sum()) / k.limit) for k, of in zip(each, which, strict=True)]
        for which in (there, keeping, [keep & (k.start < now) for k, keep in zip(each, keeping, strict=True)])
    )
    place = [
        (int(k.priority[on].min(initial=NEVER)) + tenant.priority, int(k.start[keep].min(initial=NEVER)) if in_order else 0)
        for k, on, keep, tenant in zip(each, there, keeping, tenancy.tenants, strict=True)
    ]
    if tenancy.yields == BLOCKS:  # those whose blocks have all begun are beside the first that has some to begin
        line = [one for one, share in zip(place, dense, strict=True) if share > 0 and one[1] < NEVER]
        place = [min(line, default=(NEVER, NEVER)) if one[1] == NEVER else one for one in place]
    return _Present(dense, place, held, older)


def _parts(
    each: Sequence[Kernels], run: _Present, kept: Sequence[float], tenancy: Tenancy
) -> tuple[list[float], list[float]]:  # fmt: skip
    """What part of the time each has, and how much of the first multiprocessor."""
    in_order = tenancy.yields in (KERNELS, BLOCKS)
    best = min((place[0] for place, share in zip(run.place, run.dense, strict=True) if share > 0), default=NEVER)
    edges = sorted({0, *(k.limit for k in each)})
    parts, first = [1.0] * len(each), [0.0] * len(each)
    for p, (k, dense) in enumerate(zip(each, run.dense, strict=True)):
        if tenancy.apart:
            first[p] = dense
        elif dense > 0:
            least = kept[p] if run.place[p][0] > best or in_order else 0.0
            on_each = [[q for q in range(len(each)) if each[q].limit > a] for a, b in pairwise(edges) if b <= k.limit]
            levels = [min(dense, max(least, _level(those, p, run.dense, run.place, kept))) for those in on_each]
            got = sum((b - a) * level for (a, b), level in zip(pairwise(edges), levels, strict=False))
            parts[p], first[p] = min(1.0, got / (dense * k.limit)), levels[0]
    return parts, first


def _level(
    there: Sequence[int], p: int, dense: Sequence[float], places: Sequence[tuple[int, int]], kept: Sequence[float]
) -> float:  # fmt: skip
    """What program p gets of one multiprocessor, where these have it too: those at later places keep some, of earlier all."""
    room = 1.0 - sum(dense[q] for q in there if places[q] < places[p]) - sum(kept[q] for q in there if places[q] > places[p])
    wants = sorted((dense[q], q) for q in there if places[q] == places[p] and dense[q] > 0)
    for left, (want, q) in zip(range(len(wants), 0, -1), wants, strict=True):
        got = min(want, max(0.0, room) / left)
        if q == p:
            return got
        room -= got
    return 0.0
