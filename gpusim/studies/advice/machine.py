"""What the study of capacity simulates: remedies on the machine, layouts over several GPUs, other machines."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from gpusim.base.calls import split
from gpusim.base.errors import GpusimError
from gpusim.machine.profile import Profile
from gpusim.policies.registry import SHIPPED, Registry
from gpusim.programs.transforms.registry import steps
from gpusim.programs.transforms.scaling import recorded_size
from gpusim.studies.advice import lines
from gpusim.studies.advice.answer import FIT, NotTried, Proposal, Tools
from gpusim.studies.capacity import remedies, report
from gpusim.studies.capacity.machine import estimates
from gpusim.studies.capacity.remedies import AS_IT_IS, GPUS, FitRemedy
from gpusim.studies.capacity.settings import AllocatorSettings
from gpusim.studies.capacity.study import CapacityStudy, MachineAnswer, StudyExtent, Way, study
from gpusim.trace.roles import STEP, phase_kinds
from gpusim.trace.trace import Trace
from gpusim.trace.waits import HostWait, host_waits

# What `fit` tries only when it is named, since the numbers or the loop of the program change.
_TRAINING = ("save_on_host", "checkpointing | save_on_host", "precision(to=bf16, mode=autocast)", "optimizer(to=adam8bit)")
_HALVES = ("batch(factor=0.5) | accumulate(steps=2)", "batch(factor=0.5)")
_ALONE = StudyExtent(largest_batch=False)
_ALL = StudyExtent(where_it_fits=True, largest_batch=False)
_OF_MEMORY = ("memory.capacity", "context")  # numbers of a profile that decide whether a program fits
STEPS = 1000  # of which a price is told
HOUR = 3600e9  # ns
MOST_LINES = 5  # of the script at which the host waits that are tried one by one


@dataclass(frozen=True)
class AdviceRequest:
    """What is asked about the program.

    tries    chains in place of those that are tried by default; none: those
    gpus     how many of the machine there are; None: as many as `fit` tries
    beside   other machines
    prices   machine -> dollars for an hour of one GPU
    context  bytes of the CUDA context; None: each machine's own
    own      the user's own transforms among all
    """

    tries: tuple[str, ...] = ()
    gpus: int | None = None
    beside: tuple[Profile, ...] = ()
    prices: Mapping[str, float] = field(default_factory=dict)
    context: int | None = None
    own: Registry = SHIPPED


@dataclass(frozen=True)
class OnMachine:
    """The program on the machine, under its own settings of the allocator.

    now     as it is; None: it does not fit
    why     then: the reason
    tried   what was simulated
    """

    now: Proposal | None
    why: str
    timeless: str
    tried: Tools


def on_machine(trace: Trace, profile: Profile, conf: str, asked: AdviceRequest) -> OnMachine:
    """The program as it is, and with each remedy that its trace allows."""
    settings = AllocatorSettings(conf, asked.context)
    first = study(trace, [profile], (AS_IT_IS,), settings=settings, own=asked.own)
    (alone,) = first.answers
    way = next(iter(alone.ways), None)
    now = _proposal(first, alone, way, asked) if way else None
    why = alone.refused.get(str(AS_IT_IS), "")
    if first.timeless:
        untried = [NotTried("what trades time for memory, layouts", first.timeless)]
        return OnMachine(now, why, first.timeless, Tools(untried=untried, remarks=_remarks(first, profile)))
    chosen, left = _chosen(trace, alone, asked)
    found = study(trace, [profile], chosen, settings=settings, own=asked.own, extent=_ALL)
    (answer,) = found.answers
    made = [_proposal(found, answer, each, asked) for each in answer.ways if each.remedy != AS_IT_IS]
    helpless = [NotTried(chain, reason) for chain, reason in answer.refused.items() if chain != str(AS_IT_IS)]
    left += [NotTried(chain, reason) for chain, reason in found.impossible.items()]
    said = [*_largest(trace, alone), *_remarks(first, profile)]
    return OnMachine(now, why, "", Tools(*_unneeded(made, helpless), left, said))


def elsewhere(trace: Trace, conf: str, asked: AdviceRequest) -> list[Proposal]:
    """The program as it is on each other machine on which it fits, the fastest first; without times the smallest first."""
    if not asked.beside:
        return []
    found = study(trace, asked.beside, (AS_IT_IS,), settings=AllocatorSettings(conf, asked.context), extent=_ALONE)
    made = [_proposal(found, a, a.ways[0], asked) for a in report.ordered(found) if a.fits]
    return sorted(made, key=lambda p: p.room or 0) if found.timeless else made


def under(trace: Trace, profile: Profile, conf: str, asked: AdviceRequest) -> Proposal | str:
    """The program as it is under other settings of the allocator; else why it does not fit."""
    found = study(trace, [profile], (AS_IT_IS,), settings=AllocatorSettings(conf, asked.context), extent=_ALONE)
    (answer,) = found.answers
    if not answer.ways:
        return answer.refused.get(str(AS_IT_IS), "")
    return _proposal(found, answer, answer.ways[0], asked)


def _largest(trace: Trace, alone: MachineAnswer) -> list[str]:
    """The largest batch that fits as it is, where that is known."""
    if not alone.batch:
        return []
    recorded = recorded_size(trace, ("batch",))
    word = "sample" if round(alone.batch) == 1 else "samples"
    many = f"{alone.batch:,.0f} {word} (recorded: {recorded:,})" if recorded else f"{alone.batch:.2f} of the recorded"
    return [f"The largest batch that fits {alone.profile.name} as the program is: {many}."]


def _remarks(found: CapacityStudy, profile: Profile) -> list[str]:
    """What the times and the machine's numbers rest on."""
    guessed = [path for path in estimates(profile) if not found.timeless or path in _OF_MEMORY]
    said = [f"Estimated numbers of {profile.name}'s profile: {', '.join(guessed)}."] if guessed else []
    return [*([] if found.timeless else report.of_times(found)), *said]


def _unneeded(made: list[Proposal], helpless: list[NotTried]) -> tuple[list[Proposal], list[NotTried]]:
    """Without swapping beside what fits alone."""
    alone = {p.change for p in made}
    of = {p.change: p.change.removesuffix(remedies.SWAPPING).rstrip(" |") for p in made}
    idle = [p for p in made if p.change.endswith(f"| {remedies.SWAPPING}") and of[p.change] in alone]
    left = [NotTried(p.change, f"it fits with {of[p.change]} alone") for p in idle]
    return [p for p in made if p not in idle], helpless + left


def _chosen(trace: Trace, alone: MachineAnswer, asked: AdviceRequest) -> tuple[tuple[FitRemedy, ...], list[NotTried]]:
    """What is tried, and what of the program's waits is not."""
    waits, left = _waits(trace)
    if asked.tries:
        return remedies.named(list(asked.tries), asked.own), left
    chains = [*_TRAINING, *_batches(trace, alone)] if (phase_kinds(trace) == STEP).any() else _batches(trace, alone)[1:]
    usual = remedies.default(trace, asked.gpus or GPUS)
    return (*usual, *(FitRemedy(chain) for chain in (*chains, *waits))), left


def _batches(trace: Trace, alone: MachineAnswer) -> tuple[str, ...]:
    """The step's samples in parts, and fewer of them: halves, or as many as fit where the batch is too large."""
    if alone.fits or not alone.batch:
        return _HALVES
    factor = alone.batch / (recorded_size(trace, ("batch",)) or 1)
    parts = math.ceil(1 / factor)
    return f"batch(factor={1 / parts!r}) | accumulate(steps={parts})", f"batch(factor={factor!r})"


def _waits(trace: Trace) -> tuple[list[str], list[NotTried]]:
    """The program without each wait of the host that no condition depends on."""
    chains, left = [], []
    found = host_waits(trace)
    for wait in found[:MOST_LINES]:
        if wait.decides:
            left.append(NotTried(f"no wait at {wait.line}", "a condition of the program reads what it waits for"))
        else:
            chains.append(f"without_waits(line={wait.line})" if wait.line else "without_waits")
    few = f"only the {MOST_LINES} most frequent are tried"
    left += [NotTried(f"no wait at {wait.line}", few) for wait in found[MOST_LINES:]]
    return chains, left


def _proposal(found: CapacityStudy, answer: MachineAnswer, way: Way, asked: AdviceRequest) -> Proposal:
    trace, name, work = found.need.trace, answer.profile.name, _work(found.need.trace, way.remedy.chain)
    wait = _wait_of(trace, way.remedy.chain)
    step = None if way.step_ns is None else way.bar.interval(way.step_ns)
    slowdown = answer.slowdown(way)
    saves = found.need.reserved - way.reserved
    change, line = str(way.remedy), lines.of_remedy(way.remedy, recorded_size(trace, ("batch",)))
    if wait and wait.line:
        change, line = f"no wait at {wait.line}", lines.of_wait(wait.line, wait.what)
    return Proposal(
        FIT, change, line, str(way.remedy) if way.remedy != AS_IT_IS else "none", found.settings.conf, lines.note(way.remedy),
        name, way.remedy.gpus, answer.capacity, held=(way.reserved, way.reserved),
        saves=(saves, saves), step_ns=way.step_ns, step=step, slowdown=None if slowdown is None else slowdown / work, work=work,
        price=_price(asked, name, way, step, work),
    )  # fmt: skip


def _wait_of(trace: Trace, chain: str) -> HostWait | None:
    names = [split(step, "a transform") for step in steps(chain)]
    line = next((given.get("line", "") for name, given in names if name == "without_waits"), None)
    return next((wait for wait in host_waits(trace) if wait.line == line), None)


def _work(trace: Trace, chain: str) -> float:
    """Samples of a step of one GPU, as a share of those recorded."""
    work = 1.0
    for name, given in (split(step, "a transform") for step in steps(chain)):
        if name == "batch":
            of = int(given.get("of", 0)) or recorded_size(trace, ("batch",))
            work *= int(given["to"]) / of if "to" in given and of else float(given.get("factor", 1))
        elif name == "accumulate":
            work *= int(given.get("steps", 2))
    return work


def _price(
    asked: AdviceRequest, machine: str, way: Way, step: tuple[int, int] | None, work: float
) -> tuple[float, float, float] | None:
    """Dollars for the work of so many recorded steps; GPUs with a batch each do as many steps at once."""
    hourly = asked.prices.get(machine)
    if hourly is None or way.step_ns is None or step is None:
        return None
    together = any(split(s)[0] in ("tensor_parallel", "pipeline") for s in steps(way.remedy.chain))
    gpus = way.remedy.gpus if together else 1
    price, low, high = (STEPS * ns / HOUR * hourly * gpus / work for ns in (way.step_ns, *step))
    return price, low, high


def refuse_prices(prices: Mapping[str, float], names: Sequence[str]) -> None:
    """GpusimError for a price of a machine that is not asked about."""
    for name in prices:
        if name not in names:
            raise GpusimError(f"there is a price for {name}, which is not asked about", hint="name it with --on or --beside")


