"""The whole answer for one program: what it holds, why, and what every candidate would have held instead."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from gpusim.core.requests import R_ALLOC
from gpusim.fragment.candidates import CONF, Candidate
from gpusim.fragment.diagnosis import Apart, Diagnosis, diagnose
from gpusim.fragment.fidelity import in_words
from gpusim.fragment.recorded import recorded
from gpusim.fragment.replay import ENDLESS, Replay, replay
from gpusim.fragment.requests import Requests, of_trace
from gpusim.offsets.plan import bounds
from gpusim.policies import registry
from gpusim.trace.trace import Trace
from gpusim.units import show_bytes

WORTH = 0.01       # a saving of less is not worth a change
DEVICE = 80 << 30  # bytes of a device where nobody names one: some allocators take a share of it at once


@dataclass(frozen=True)
class Tried:
    """One candidate and what became of the program under it."""

    candidate: Candidate
    replay: Replay
    apart: Apart
    diagnosis: Diagnosis


@dataclass(frozen=True)
class Floor:
    """What no allocator can beat: bytes that live at once, and the lowest plan made with the whole program known.

    planned  None: a program so long is planned by `gpusim offsets` only
    proven   no plan is lower
    """

    live: int
    planned: int | None = None
    proven: bool = False


@dataclass(frozen=True)
class Study:
    """now: the recording itself, or the first candidate where it has no addresses or held more than `capacity`.

    asked     bytes that the program asks for at once, at most
    tried     best first
    own       what the program runs with, as far as the recording tells
    fidelity  how much of the recording the model of its allocator repeats, or why that cannot be said; "" for others
    """

    program: Requests
    asked: int
    own: Candidate
    capacity: int
    now: Replay
    diagnosis: Diagnosis
    tried: list[Tried]
    floor: Floor
    fidelity: str = ""

    @property
    def best(self) -> Tried | None:
        """The best candidate that a user can simply switch to and that is worth it."""
        able = [t for t in self.tried if t.candidate.family == self.own.family]
        first = min(able, key=_rank, default=None)
        if first is None or (first.replay.fits and self.now.fits and self.saving(first) < WORTH):
            return None
        fewer = first.replay.counts["refused"] < self.now.counts["refused"]
        return first if fewer or (first.replay.fits and self.now.fits) else None

    def saving(self, tried: Tried) -> float:
        """Share of what is held now that this candidate would not hold."""
        return 1 - tried.replay.held_peak / self.now.held_peak if self.now.held_peak else 0.0


def for_figures(found: Study) -> Study:
    """The study without what only a replay needs: small enough to be sent to another process."""
    bare = {id(r): replace(r, policy=None, S=None, log=None) for r in (t.replay for t in found.tried)}
    bare[id(found.now)] = replace(found.now, policy=None, S=None)
    tried = [replace(t, replay=bare[id(t.replay)], diagnosis=found.diagnosis) for t in found.tried]
    return replace(found, now=bare[id(found.now)], tried=tried)


def study(trace: Trace, candidates: Sequence[Candidate], capacity: int | None = None) -> Study:
    """Replay a recorded program under each candidate; the first of them is what it ran with.

    capacity  bytes that an allocator may hold; None: what the recording tells of a request that failed, else no limit
    """
    program = of_trace(trace)
    real = recorded(trace, program)
    limit = capacity or (real.capacity if real else ENDLESS)
    if real and real.held_peak > limit:
        real = None
    asked = _most(program)
    room = limit if limit < ENDLESS else max(DEVICE, 2 * asked)
    tried = []
    for candidate in candidates:
        policy = registry.get("place", candidate.spec)
        done = replay(program, policy, room, log=True)
        keeps = apart(done)
        tried.append(Tried(candidate, done, keeps, diagnose(done, keeps)))
    now = real or tried[0].replay
    about = diagnose(real, tried[0].apart) if real else tried[0].diagnosis
    planned = bounds(program.buffers())
    floor = Floor(planned[0], planned[2], planned[3]) if planned else Floor(asked)
    return Study(program, asked, candidates[0], limit, now, about, sorted(tried, key=_rank), floor, in_words(trace))


def _most(program: Requests) -> int:
    """Bytes that the program requests at once, at most."""
    rows = program.rows()
    return int(np.cumsum(np.where(rows["kind"] == R_ALLOC, rows["size"], -rows["size"])).max(initial=0))


def apart(done: Replay) -> Apart:
    """What the allocator keeps apart, as it says itself."""
    told = getattr(done.policy.module, "apart", None) if done.policy else None
    return Apart(**told(done.S)) if told else Apart()


def _rank(tried: Tried) -> tuple[int, int, int, str]:
    counts = tried.replay.counts
    return counts["refused"], counts["held_peak"], counts["device_allocs"], tried.replay.name


def show_share(value: float) -> str:
    """A share of 1 to a tenth of a percent; what is less, and not nothing, reads so."""
    return "< 0.1 %" if 0 < value < 0.001 else f"{max(0.0, value):.1%}".replace("%", " %").replace(".0 %", " %")


def advice(found: Study) -> str:
    """One sentence: what to change, or why nothing."""
    best, now = found.best, found.now
    failed = show_bytes(now.counts["refused_bytes"])
    if best is None:
        if not now.fits:
            able = next((t for t in found.tried if t.replay.fits), None)
            other = f"{able.replay.name} would serve all, but no setting brings it" if able else "the program needs more room"
            return f"No setting helps: at least as many requests fail under each, like that of {failed}; {other}."
        gain = max((found.saving(t) for t in found.tried if t.replay.fits), default=0.0)
        if gain <= 0:
            return "Leave it as it is: nothing that was tried holds less."
        most = f"the best of {len(found.tried)} tried would save {show_share(gain)}"
        return f"Leave it as it is: {most}, and nothing that is simply switched on more than 1 %."
    change = _change(found, best.candidate)
    held, less = show_bytes(best.replay.held_peak), show_share(found.saving(best))
    if now.fits:
        return f"{change} it would hold {held}, {less} less."
    if best.replay.fits:
        return f"{change} the request of {failed} that failed would succeed, as would all others; it would hold {held}."
    refused, before = best.replay.counts["refused"], now.counts["refused"]
    return f"{change} {refused:,} requests would fail instead of {before:,}. All of them need a larger device, or less."


def _change(found: Study, to: Candidate) -> str:
    """What to do to get there, as the beginning of a sentence."""
    if to == found.own:  # better than the recording, which began with memory in pieces
        return "Leave the settings; without what lay in pieces before the recording (torch.cuda.empty_cache() there):"
    if to.family == "rmm":
        return f"Use {to.how}:"
    return f"Set {to.how} :" if to.params or to.place != "pytorch" else f"Unset {CONF} :"
