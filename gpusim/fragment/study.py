"""The whole answer for one program: the doctor's, and what every candidate would have held instead."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from gpusim.core.requests import R_ALLOC
from gpusim.fragment import doctor
from gpusim.fragment.answer import Answer
from gpusim.fragment.baseline import Baseline, Outcome, baseline, under
from gpusim.fragment.candidates import Candidate
from gpusim.fragment.diagnosis import Apart, Diagnosis, diagnose
from gpusim.fragment.recorded import recorded
from gpusim.fragment.remedies import Tried
from gpusim.fragment.replay import Replay
from gpusim.fragment.requests import Requests
from gpusim.offsets.plan import bounds
from gpusim.trace.trace import Trace


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
    """The answer, and what tables and figures show beside it.

    asked      bytes that the program asks for at once, at most
    own, conf  what the program runs with, as far as the recording tells; its settings
    now        the recording itself, or `base.replay` where it has no addresses
    tried      least held first; the program's own setting is among them
    """

    answer: Answer
    base: Baseline
    program: Requests
    asked: int
    own: Candidate
    conf: str
    capacity: int
    now: Replay
    diagnosis: Diagnosis
    tried: list[Tried]
    floor: Floor


def for_figures(found: Study) -> Study:
    """The study without what only a replay needs: small enough to be sent to another process."""
    def bare(made: Replay, log: bool = False) -> Replay:
        return replace(made, policy=None, S=None, log=made.log if log else None)

    tried = [replace(t, outcome=replace(t.outcome, replay=bare(t.replay))) for t in found.tried]
    return replace(found, now=bare(found.now, log=True), base=replace(found.base, replay=bare(found.base.replay)), tried=tried)


def study(trace: Trace, candidates: Sequence[Candidate], capacity: int | None = None) -> Study:
    """Examine a recorded program under each candidate; the first of them is what it ran with.

    capacity  bytes that the allocator could hold were it alone on the device; None: what the recording tells
    """
    base = baseline(trace, capacity)
    own = candidates[0]
    tried = [Tried(own, Outcome(base.replay, base.replay.held_peak, base.replay.held_peak))]
    tried += [Tried(c, under(base, c)) for c in candidates[1:]]
    answer = doctor.answer(trace, capacity, base, own, tried)
    program = base.replay.program
    now = recorded(trace, program) or base.replay
    planned = bounds(program.buffers())
    asked = _most(program)
    floor = Floor(planned[0], planned[2], planned[3]) if planned else Floor(asked)
    conf = str(trace.meta.get("alloc_conf") or "")
    return Study(answer, base, program, asked, own, conf, base.capacity, now, diagnose(now, apart(base.replay)),
                 sorted(tried, key=_rank), floor)  # fmt: skip


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
