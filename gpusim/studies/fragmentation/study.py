"""The whole answer for one program: the doctor's, and what every candidate would have held instead."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from gpusim.policies.place.parts.packing.plan import bounds
from gpusim.policies.registry import SHIPPED
from gpusim.policies.trials.allocator_replay import AllocatorReplay
from gpusim.policies.trials.allocator_requests import AllocatorRequests, of_trace
from gpusim.studies.fragmentation import doctor
from gpusim.studies.fragmentation.answer import OomAnswer
from gpusim.studies.fragmentation.baseline import Baseline, SettingOutcome, under
from gpusim.studies.fragmentation.candidates import Candidate
from gpusim.studies.fragmentation.diagnosis import Apart, Diagnosis, diagnose
from gpusim.studies.fragmentation.recorded import recorded
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
class FragmentationStudy:
    """The answer, and what tables and figures show beside it.

    asked      bytes that the program asks for at once, at most
    conf       the settings that it ran with
    now        the recording itself, or `base.replay` where it has no addresses
    tried      least held first; the program's own setting is among them
    """

    answer: OomAnswer
    base: Baseline
    program: AllocatorRequests
    asked: int
    conf: str
    capacity: int
    now: AllocatorReplay
    diagnosis: Diagnosis
    tried: list[SettingOutcome]
    floor: Floor


def for_figures(found: FragmentationStudy) -> FragmentationStudy:
    """The study without what only a replay needs: small enough to be sent to another process."""
    def bare(made: AllocatorReplay, log: bool = False) -> AllocatorReplay:
        return replace(made, policy=None, S=None, log=made.log if log else None)

    tried = [
        replace(t, candidate=replace(t.candidate, policies=SHIPPED), low=bare(t.high), high=bare(t.high)) for t in found.tried
    ]
    own = replace(found.base, replay=bare(found.base.replay), bare=bare(found.base.bare), repeated=None, others=())
    return replace(found, now=bare(found.now, log=True), base=own, tried=tried)


def study(trace: Trace, candidates: Sequence[Candidate], capacity: int | None = None) -> FragmentationStudy:
    """Examine a recorded program under each candidate; the first of them is what it ran with.

    capacity  bytes that the allocator could hold were it alone on the device; None: what the recording tells
    """
    base = doctor.compared_with(trace, capacity)
    tried = [base.ran, *(under(base, c) for c in candidates if c != base.own)]
    answer = doctor.answer(trace, capacity, base, tried)
    program = of_trace(trace)
    now = recorded(trace, program) if not answer.moment or not answer.moment.simulated else None
    if now is None:
        now = base.ran.high
        program = now.program
    planned = bounds(program.buffers())
    asked = int(program.asked().max(initial=0))
    floor = Floor(planned[0], planned[2], planned[3]) if planned else Floor(asked)
    conf = str(trace.meta.get("alloc_conf") or "")
    return FragmentationStudy(answer, base, program, asked, conf, base.capacity, now, diagnose(now, apart(base.replay)),
                 sorted(tried, key=_rank), floor)  # fmt: skip


def apart(done: AllocatorReplay) -> Apart:
    """What the allocator keeps apart, as it says itself."""
    told = getattr(done.policy.module, "apart", None) if done.policy else None
    return Apart(**told(done.S)) if told else Apart()


def _rank(tried: SettingOutcome) -> tuple[int, int, int, str]:
    counts = tried.high.counts
    return counts["refused"], counts["held_peak"], counts["device_allocs"], tried.high.name


def show_share(value: float) -> str:
    """A share of 1 to a tenth of a percent; what is less, and not nothing, reads so."""
    return "< 0.1 %" if 0 < value < 0.001 else f"{max(0.0, value):.1%}".replace("%", " %").replace(".0 %", " %")
