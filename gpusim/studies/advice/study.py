"""The advice for one program: what each tool simulated, ranked by what came out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from gpusim.base.errors import GpusimError
from gpusim.base.units import show_bytes
from gpusim.machine.profile import Profile
from gpusim.policies.trials.allocator_replay import ENDLESS
from gpusim.studies.advice import allocator, hints, machine, ranking
from gpusim.studies.advice.answer import FAULTS, NotTried, Proposal, RankedAdvice, Tools
from gpusim.studies.advice.inputs import Recordings
from gpusim.studies.advice.machine import AdviceRequest
from gpusim.studies.capacity.settings import AllocatorSettings
from gpusim.studies.fragmentation.answer import OomAnswer
from gpusim.studies.fragmentation.moment import has_segments
from gpusim.studies.fragmentation.remedies import WORTH
from gpusim.studies.fragmentation.report import leaked
from gpusim.trace.trace import OOM as FAILED
from gpusim.trace.trace import Trace

ORDER = (
    "Rows are in the order of their estimated times, those within 5 % in the order of the memory held; where the intervals of "
    "two rows overlap, that order is not certain."
)
Progress = Callable[[str], object]  # hears what begins now


@dataclass(frozen=True)
class Where:
    """The machine that the program is to run on: its profile, the profile's file if it has one, and the user's word for it."""

    profile: Profile
    file: Path | None
    word: str


def silent(words: str) -> None:
    """Says nothing."""


def advise(found: Recordings | Path, where: Where | None, asked: AdviceRequest, tell: Progress = silent) -> RankedAdvice:
    """Advice for a recorded program, or for a managed one in a file.

    where   None: the allocator's settings alone, on the device that a snapshot is of
    tell    hears what begins
    Raises GpusimError where nothing can be said.
    """
    if where is None and (isinstance(found, Path) or found.traces[found.chosen].ops):
        raise GpusimError("advice needs a machine", hint="name one, such as a100-pcie-40gb; `gpusim profiles` lists them")
    if isinstance(found, Path):
        assert where is not None
        return _managed(found, where, tell)
    return _recorded(found, where, asked, tell)


def _recorded(of: Recordings, where: Where | None, asked: AdviceRequest, tell: Progress) -> RankedAdvice:
    trace = of.traces[of.chosen]
    conf = str(trace.meta.get("alloc_conf") or "")
    room = None if where is None else AllocatorSettings(conf, asked.context).room(where.profile)
    tell("the allocator's settings")
    found, answer, said = allocator.examined(of.traces, of.chosen, room)
    seen, others = None, list[Proposal]()
    if where is not None:
        tell(f"remedies on {where.profile.name}")
        seen = machine.on_machine(trace, where.profile, conf, asked)
        if asked.beside:
            tell("other machines")
        others = machine.elsewhere(trace, conf, asked)
    now = seen.now if seen else None
    if now is not None and has_segments(trace):  # it tells what the program held before
        now = replace(now, held=found.base.ran.held)
    fits = None if seen is None else now is not None
    doctors = allocator.proposed(found, answer, where.profile if where else None, asked, fits)
    drivers = Tools()
    if where is not None and seen is not None and not fits and not seen.timeless:
        tell(hints.UNIFIED)
        drivers = _unified(trace, where, room)
    tools = [doctors, *([seen.tried] if seen else []), drivers]
    failed = bool(answer.moment and answer.moment.failed) if fits is None else not fits
    device = room or answer.device
    least = WORTH * (device if device < ENDLESS else found.base.ran.high.held_peak)
    helps, idle = ranking.apart([p for tool in tools for p in tool.proposals], now, failed, least)
    untried = [one for tool in tools for one in tool.untried] + _never(where, asked, fits)
    remarks = [said] if said else []
    if (trace.kind == FAILED).any():
        remarks.append("The recording has a request that failed; what the program would have held after it is not known.")
    if any(p.tool == FAULTS for p in helps):
        remarks.append(hints.WHOLE)
    if any(p.step for p in helps):
        remarks.append(ORDER)
    return RankedAdvice(
        trace.name, of.file, where.word if where else "", room, answer.verdict, _leaks(answer, room, now), now, fits,
        seen.why if seen else "",
        sorted(helps, key=ranking.rank), others, idle + [one for tool in tools for one in tool.helpless], untried,
        list(dict.fromkeys([*remarks, *(line for tool in tools for line in tool.remarks)])),
    )  # fmt: skip


def _unified(program: Trace | Path, where: Where, room: int | None) -> Tools:
    if where.file is None:
        return Tools(untried=[NotTried(hints.UNIFIED, "its machine must have a name or a file, not a value alone")])
    return hints.unified(hints.ManagedRun(program, where.file, where.word, room))


def _managed(program: Path, where: Where, tell: Progress) -> RankedAdvice:
    """Hints to the driver of unified memory."""
    tell(f"hints for {hints.UNIFIED}")
    found = _unified(program, where, None)
    now = next((p for p in found.proposals if p.change == hints.UNIFIED), None)
    better = [p for p in found.proposals if p is not now]
    left = NotTried("settings of an allocator, checkpointing, layouts", "a managed program has no allocator and no operators")
    untried = [*found.untried, left]
    return RankedAdvice(
        program.stem, "", where.word, None, "", [], now, now is not None, "", better, [], found.helpless, untried, [hints.WHOLE]
    )


def _leaks(answer: OomAnswer, room: int | None, now: Proposal | None) -> list[str]:
    """What each step leaves behind, and after how many steps that fills what is left of the machine."""
    found = leaked(answer)
    grows = sum(leak.per_step for leak in answer.leaks)
    if not found or room is None or now is None or now.held is None or not grows:
        return found
    left = (room - now.held[1]) // grows
    return [*found, f"At {show_bytes(grows)} a step the machine is full after about {left:,} steps more than were recorded."]


def _never(where: Where | None, asked: AdviceRequest, fits: bool | None) -> list[NotTried]:
    """What could be asked and was not."""
    left = []
    if where is None:
        left.append(NotTried("whether it fits a machine, and what trades time for memory", "no machine is named: --on MACHINE"))
    elif not asked.beside:
        left.append(NotTried("other machines", "none is named: --beside MACHINES, or --beside all"))
    if where is not None and not asked.prices:
        left.append(NotTried("prices", "profiles have none: --price MACHINE=DOLLARS for an hour"))
    if fits:
        left.append(NotTried(hints.UNIFIED, "the program fits"))
    return left


