"""What a controller of the batch is: a generator that yields the samples of the next round and is sent what came of it.

    def mine(start: int = 0) -> Controller:
        seen = yield start                # 0: the batch of the recording
        while True:
            seen = yield seen.batch + 1 if seen.finished else seen.batch // 2

A built-in is one file in `gpusim/engine/control/controllers/`.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from functools import partial

from gpusim.base.functions import Function, Functions

_KNOWN = Functions("gpusim.engine.control.controllers", "controller", "Controller")


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

    @property
    def finished(self) -> bool:
        return self.outcome == "finished"


Controller = Generator[int, Round, None]


def entries() -> list[Function]:
    """All controllers by name."""
    return _KNOWN.entries()


def get(spec: str) -> Controller:
    """The controller that "name(parameter=value)" means, about to say its first batch.  GpusimError for what does not exist."""
    entry, values = _KNOWN.bind(spec)
    made: Controller = partial(_KNOWN.load(entry), **values)()
    return made
