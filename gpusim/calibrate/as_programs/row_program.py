"""A program for the simulator that stands for a measurement row, and what its programs share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gpusim.machine.profile import Profile
from gpusim.machine.tiers import DEFAULT
from gpusim.trace.build import TraceBuilder
from gpusim.trace.trace import RECORD, WAIT, Trace

MANY = 400  # kernels in a row, small copies in a row
LARGE = 16  # large copies in a row
BIG = 1 << 22  # bytes from which a copy is large
SPIN = 5_000_000  # ns of the kernel that holds back what the host submits meanwhile


@dataclass(frozen=True)
class RowProgram:
    """What to run, and what its time means."""

    trace: Trace
    repeats: int
    """How many copies, kernels or calls the time is of."""
    uses: tuple[str, ...]
    """The numbers of the profile that decide it."""
    stream: int | None = None
    """Time from the first start to the last end on this stream; None: the whole program."""
    without: Trace | None = None
    """A program whose time is taken off: what surrounds the calls."""
    place: str = "device"
    tiers: str = DEFAULT
    plan: Any = "none"
    moved: float = 0.0
    """Bytes of one repeat that the row counts; 0 where it gives a time."""
    flops: float = 0.0
    graph: bool = False
    """The kernels are nodes of a CUDA graph, which the host launches once."""
    machine: Profile | None = None
    """What it runs on where that is not the machine as it stands: peers that meet another way."""


@dataclass(frozen=True)
class Cannot:
    """Why a row is not simulated."""

    why: str


def started(builder: TraceBuilder, streams: int = 2) -> None:
    """Hold streams from 1 on back until all is submitted."""
    builder.op("spin", (), (), duration=SPIN)
    builder.event(RECORD, 0, stream=0)
    for stream in range(1, streams + 1):
        builder.event(WAIT, 0, stream=stream)
