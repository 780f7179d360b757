"""What a controller is: a generator that says how the next round of a training is done, and is sent what came of it.

    def mine(start: int = 0) -> Controller:
        seen = yield start                # samples of the next round; 0: the batch of the recording
        while True:
            seen = yield seen.batch + 1 if seen.finished else seen.batch // 2

A `Choice` in place of the number names policies of the next round, too.  A built-in is one file in
`gpusim/engine/control/controllers/`.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from functools import partial

from gpusim.base.functions import Function, Functions

_KNOWN = Functions("gpusim.engine.control.controllers", "controller", "Controller")


@dataclass(frozen=True)
class Choice:
    """How a round is done: its samples, 0 as recorded, and its policies where they are not those of the training."""

    batch: int = 0
    release: str = ""
    prefetch: str = ""

    @property
    def policies(self) -> dict[str, str]:
        """Those that are chosen."""
        return {kind: spec for kind, spec in (("release", self.release), ("prefetch", self.prefetch)) if spec}


@dataclass(frozen=True)
class Round:
    """One replay of the program with a batch of its own."""

    number: int
    start_ns: int      # time of the whole training
    batch: int         # samples
    memory: int        # bytes that the allocator could hold
    outcome: str       # of results.result: "finished", "oom", ...
    time_ns: int       # until the end, or until memory ran out
    stall_share: float  # of the time in which kernels waited for memory
    reserved_peak: int
    policies: str = ""  # those that the controller chose

    @property
    def finished(self) -> bool:
        return self.outcome == "finished"


Controller = Generator[int | Choice, Round, None]


def entries() -> list[Function]:
    """All controllers by name."""
    return _KNOWN.entries()


def get(spec: str) -> Controller:
    """The controller that "name(parameter=value)" means, about to say its first batch.  GpusimError for what does not exist."""
    entry, values = _KNOWN.bind(spec)
    made: Controller = partial(_KNOWN.load(entry), **values)()
    return made
