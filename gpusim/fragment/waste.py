"""What is held for nothing by a program in which no request failed: asked of the model, by replays that need less."""

from __future__ import annotations

import numpy as np

from gpusim.core.log import RELEASE, RESERVE
from gpusim.fragment.answer import Cause
from gpusim.fragment.baseline import Baseline, ran_as
from gpusim.fragment.causes import WORDS
from gpusim.fragment.moment import Moment
from gpusim.fragment.programs import inserted, release
from gpusim.fragment.replay import Replay
from gpusim.fragment.requests import Requests

MOMENTS = 12  # of the program's first half at which an empty_cache is tried
CLOSE = 8 << 20  # bytes within which the least that the program needs is found


def wasted(base: Baseline, m: Moment, least: float) -> list[Cause]:
    """least: bytes from which on it is a cause.

    cached         what an empty_cache at some moment of the first half would have kept from being held later
    fragmentation  what the program needs beyond its live bytes, though the allocator gives its cache back when it must
    """
    program = base.ran.high.program
    live = int(program.asked()[program.before :].max(initial=0))
    if base.ran.high.held_peak - live < least:
        return []
    found = []
    unused = _unused(base, program)
    if unused >= least:
        found.append(Cause("cached", unused, "whole segments kept for later that no later request fits"))
    between = _needed(base, program, live) - live
    if between >= least:
        found.append(Cause("fragmentation", between, _kind(m)))
    return found


def _unused(base: Baseline, program: Requests) -> int:
    """By how much an empty_cache in the first half lowers the most that is held from then on."""
    own, found = base.ran.high, []
    for k in range(MOMENTS + 1):
        at = program.before + (program.total - program.before) * k // (2 * MOMENTS)
        found.append(_held(own, at) - _held(ran_as(base, _emptied(program, at)), at + 1))
    return sorted(found)[-2]  # what helps at one of them alone is luck


def _emptied(program: Requests, at: int) -> Requests:
    """The program with an empty_cache before one request."""
    return inserted(program, np.array([at]), release(1))


def _held(run: Replay, at: int) -> int:
    """The most that is held from a request on."""
    log = run.log
    change = np.where(log["kind"] == RESERVE, log["bytes"], np.where(log["kind"] == RELEASE, -log["bytes"], 0))
    held = np.cumsum(change)
    first = int(np.searchsorted(log["t"], at))
    return int(held[max(first - 1, 0) :].max(initial=0))


def _needed(base: Baseline, program: Requests, live: int) -> int:
    """The least with which the allocator serves all, beginning with an empty cache."""
    low, high = live, base.ran.high.held_peak
    emptied = _emptied(program, program.before)
    while high - low > max(CLOSE, (base.ran.high.held_peak - live) // 64):
        middle = (low + high) // 2
        if ran_as(base, emptied, middle).fits:
            high = middle
        else:
            low = middle
    return high


def _kind(m: Moment) -> str:
    """What keeps the free bytes from being used, judged at the peak."""
    h = m.holes
    sizes = {
        "rounding": m.live - m.requested,
        "private_pool": int(h.bytes[h.private].sum()),
        "stream": int(h.bytes[(h.stream != m.stream) & ~h.private].sum()),
        "pieces": int(h.bytes[(h.stream == m.stream) & ~h.private].sum()),
    }
    name = max(sizes, key=lambda kind: sizes[kind])
    return f"{name}: {WORDS[name]}"
