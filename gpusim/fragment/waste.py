"""What is held for nothing by a program in which no request failed: asked of the model, by replays that need less."""

from __future__ import annotations

import numpy as np

from gpusim.core.log import RELEASE, RESERVE
from gpusim.core.requests import R_COMMAND
from gpusim.fragment.answer import Cause
from gpusim.fragment.baseline import Baseline, ran_as
from gpusim.fragment.causes import WORDS
from gpusim.fragment.moment import Moment
from gpusim.fragment.programs import inserted, release
from gpusim.fragment.replay import Replay
from gpusim.fragment.requests import Requests
from gpusim.policies.pytorch import rules

MOMENTS = 12  # of the program's first half at which an empty_cache is tried
CLOSE = 8 << 20  # bytes within which the least that the program needs is found


def wasted(base: Baseline, m: Moment, least: float) -> list[Cause]:
    """least: bytes from which on it is a cause.

    cached         what an empty_cache at some moment of the first half would have kept from being held later
    fragmentation  what the program needs beyond its live bytes, though the allocator gives its cache back when it must
    """
    program = base.ran.high.program
    live = int(program.asked()[program.before :].max(initial=0))
    found = []
    unused = _unused(base, program, least)
    if unused >= least:
        found.append(Cause("cached", unused, "whole segments kept for later that no later request fits"))
    if base.ran.high.held_peak - live >= least:
        between = _needed(base, program, live) - live
        if between >= least:
            found.append(Cause("fragmentation", between, _kind(m, between)))
    return found


def _unused(base: Baseline, program: Requests, least: float) -> int:
    """By how much an empty_cache in the first half lowers the most that is held from then on."""
    own, found = base.ran.high, [0, 0]
    later = np.maximum.accumulate(program.asked()[::-1])[::-1]  # the most that is live from each request on
    for k in range(MOMENTS + 1):
        at = program.before + (program.total - program.before) * k // (2 * MOMENTS)
        if _held(own, at) - int(later[min(at, program.total - 1)]) >= least:
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
    total = base.ran.high.capacity
    while high - low > max(CLOSE, (base.ran.high.held_peak - live) // 64):
        middle = (low + high) // 2
        own = base.own.place == "pytorch"
        asked = _limited(program, middle / total) if own else _emptied(program, program.before)
        if ran_as(base, asked, total if own else middle).fits:
            high = middle
        else:
            low = middle
    return high


def _limited(program: Requests, share: float) -> Requests:
    """The program with an empty cache at its start, and only from then on with a share of the device."""
    rows = release(2)
    rows["kind"][1], rows["unit"][1], rows["size"][1] = R_COMMAND, rules.SET_FRACTION, int(share * rules.SCALE)
    return inserted(program, np.array([program.before] * 2), rows)


def _kind(m: Moment, between: int) -> str:
    """What keeps the free bytes from being used, judged at the peak."""
    h = m.holes
    if 2 * (m.live - m.requested) >= between:
        return f"rounding: {WORDS['rounding']}"
    sizes = {
        "private_pool": int(h.bytes[h.private].sum()),
        "stream": int(h.bytes[(h.stream != m.stream) & ~h.private].sum()),
        "pieces": int(h.bytes[(h.stream == m.stream) & ~h.private].sum()),
    }
    name = max(sizes, key=lambda kind: sizes[kind])
    return f"{name}: {WORDS[name]}"
