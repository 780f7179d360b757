"""What advice consists of: proposals, each simulated, and what was not tried."""

from __future__ import annotations

from dataclasses import dataclass, field

OOM, FIT, FAULTS = "oom", "fit", "faults"  # the verbs that simulate what is proposed

Ends = tuple[int, int]
"""The least and the most that a quantity may be."""


@dataclass(frozen=True)
class Proposal:
    """One change, simulated on the program.

    tool      the verb that simulated it: OOM, FIT or FAULTS
    change    a setting of PYTORCH_CUDA_ALLOC_CONF, a chain of transforms, hints, or words
    chain     the transforms that it is, "" for what is none; conf: the allocator's settings with it
    line      what a user copies, "" where nothing can be copied
    note      what else it changes, "" for nothing
    machine   where; gpus: how many of it; room: bytes that the program may hold on each
    fits      every request is served
    held      bytes held at the peak, on each GPU; None: not known
    saves     bytes fewer than the program holds as it is, measured by the same tool; None: not known
    step_ns   the last iteration, of unified memory the whole program; None: not simulated
    step      between which times that lies; None: not known
    slowdown  `step_ns` over that of the program as it is in a memory that never fills, for equal work; None: not simulated
    work      samples of a step, 1.0: as recorded
    price     dollars for 1,000 steps' work as recorded, and between what; None: no price was given
    """

    tool: str
    change: str
    line: str = ""
    chain: str = ""
    conf: str = ""
    note: str = ""
    machine: str = ""
    gpus: int = 1
    room: int | None = None
    fits: bool = True
    held: Ends | None = None
    saves: Ends | None = None
    step_ns: int | None = None
    step: Ends | None = None
    slowdown: float | None = None
    work: float = 1.0
    price: tuple[float, float, float] | None = None


@dataclass(frozen=True)
class NotTried:
    """What is not among the proposals, and why: it was not simulated, or it does not help."""

    change: str
    why: str


@dataclass(frozen=True)
class Tools:
    """What one of the tools found, before it is ranked."""

    proposals: list[Proposal] = field(default_factory=list)
    helpless: list[NotTried] = field(default_factory=list)
    untried: list[NotTried] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class RankedAdvice:
    """The whole answer for one program.

    trace      by which name or file the program is found again, "" where it is kept nowhere
    machine    its name, "" where none was named; room: bytes that the program may hold there
    verdict    what the OOM doctor says of the program, "" where it was not asked; leaks: what it says of each
    now        the program as it is on the machine; None where that does not fit, or no machine was named
    fits       whether it does; None: no machine was named; why: else the reason, "" where it is not known
    proposals  what helps, best first
    elsewhere  the program as it is on other machines, fastest first
    helpless   what was simulated and does not help, and why
    untried    what was not simulated, and why
    remarks    what the numbers rest on, a sentence each
    """

    name: str
    trace: str
    machine: str
    room: int | None
    verdict: str
    leaks: list[str]
    now: Proposal | None
    fits: bool | None
    why: str
    proposals: list[Proposal]
    elsewhere: list[Proposal]
    helpless: list[NotTried]
    untried: list[NotTried]
    remarks: list[str]
