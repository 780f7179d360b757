"""What is held for nothing by a program in which no request failed: asked of the model, by replays that need less."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from gpusim.policies.place.parts.pytorch import rules
from gpusim.policies.trials.allocator_replay import AllocatorReplay
from gpusim.policies.trials.allocator_requests import AllocatorRequests, WholeProgram
from gpusim.policies.trials.requests import R_ALLOC, R_COMMAND
from gpusim.results.log import RELEASE, RESERVE
from gpusim.studies.fragmentation.answer import Cause
from gpusim.studies.fragmentation.baseline import Baseline, ran_as
from gpusim.studies.fragmentation.candidates import pytorch
from gpusim.studies.fragmentation.causes import WORDS
from gpusim.studies.fragmentation.moment import Moment
from gpusim.studies.fragmentation.programs import inserted, release

MOMENTS = 12  # of the program's first half at which an empty_cache is tried
DIVISIONS = "roundup_power2_divisions"
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
            found.append(Cause("fragmentation", between, _kind(base, m, live + between // 2)))
    return found


def _unused(base: Baseline, program: AllocatorRequests, least: float) -> int:
    """By how much an empty_cache in the first half lowers the most that is held from then on."""
    own, found = base.ran.high, 0
    later = np.maximum.accumulate(program.asked()[::-1])[::-1]  # the most that is live from each request on
    for k in range(MOMENTS + 1):
        at = program.before + (program.total - program.before) * k // (2 * MOMENTS)
        if _held(own, at) - int(later[min(at, program.total - 1)]) >= least:
            found = max(found, _held(own, at) - _held(ran_as(base, _emptied(program, at)), at + 1))
    return found


def _emptied(program: AllocatorRequests, at: int) -> AllocatorRequests:
    """The program with an empty_cache before one request."""
    return inserted(program, np.array([at]), release(1))


def _held(run: AllocatorReplay, at: int) -> int:
    """The most that is held from a request on."""
    log = run.log
    change = np.where(log["kind"] == RESERVE, log["bytes"], np.where(log["kind"] == RELEASE, -log["bytes"], 0))
    held = np.cumsum(change)
    first = int(np.searchsorted(log["t"], at))
    return int(held[max(first - 1, 0) :].max(initial=0))


def _needed(base: Baseline, program: AllocatorRequests, live: int) -> int:
    """The least with which the allocator serves all, beginning with an empty cache."""
    low, high = live, base.ran.high.held_peak
    while high - low > max(CLOSE, (base.ran.high.held_peak - live) // 64):
        middle = (low + high) // 2
        if _served(base, program, middle):
            high = middle
        else:
            low = middle
    return high


def _served(base: Baseline, program: AllocatorRequests, room: int) -> bool:
    """Whether the allocator serves all with so many bytes, beginning with an empty cache."""
    total = base.ran.high.capacity
    own = base.own.place == "pytorch"
    asked = _limited(program, room / total) if own else _emptied(program, program.before)
    return ran_as(base, asked, total if own else room).fits


def _limited(program: AllocatorRequests, share: float) -> AllocatorRequests:
    """The program with an empty cache at its start, and only from then on with a share of the device."""
    rows = release(2)
    rows["kind"][1], rows["unit"][1], rows["size"][1] = R_COMMAND, rules.SET_FRACTION, int(share * rules.SCALE)
    return inserted(program, np.array([program.before] * 2), rows)


def _kind(base: Baseline, m: Moment, room: int) -> str:
    """What keeps the free bytes from being used: the pattern without which half of them suffices, else pieces.

    room  bytes live, and half of what is needed beyond them
    """
    conf = str(dict(base.own.params).get("conf", ""))
    plain = ",".join(item for item in conf.split(",") if not item.strip().startswith(DIVISIONS))
    program = base.ran.low.program  # from what was in use: the recorded heap is one that the pattern has made
    rows = program.rows()
    command = rows["kind"] == R_COMMAND
    pools = command & np.isin(rows["unit"], (rules.POOL_BEGIN, rules.POOL_END, rules.POOL_RELEASE))
    streams = np.unique(rows["stream"][(rows["kind"] == R_ALLOC) & (np.arange(len(rows)) >= program.before)])
    without: dict[str, Callable[[], bool]] = {}
    if plain != conf:
        without["rounding"] = lambda: _served(replace(base, own=pytorch(plain)), program, room)
    if pools.any():
        without["private_pool"] = lambda: _served(base, _kept(program, ~pools), room)
    if len(streams) > 1:
        without["stream"] = lambda: _served(base, _in_one_stream(program, ~command), room)
    name = next((name for name, served in without.items() if served()), "pieces")
    if name == "pieces" and m.live - m.requested >= room - m.requested:
        name = "rounding"
    return f"{name}: {WORDS[name]}"


def _kept(program: AllocatorRequests, which: npt.NDArray[np.bool_]) -> AllocatorRequests:
    """The program without the other requests."""
    before = int(which[: program.before].sum())
    return replace(program, pieces=WholeProgram(program.rows()[which]), total=int(which.sum()), before=before,
                   event=program.event[which], iteration=program.iteration[which], returned={})  # fmt: skip


def _in_one_stream(program: AllocatorRequests, which: npt.NDArray[np.bool_]) -> AllocatorRequests:
    """The program with these requests in the stream of the first one."""
    rows = program.rows().copy()
    rows["stream"][which] = rows["stream"][which][0]
    return replace(program, pieces=WholeProgram(rows))
