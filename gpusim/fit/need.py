"""What a program needs of a GPU's memory: the peak of what PyTorch's allocator reserves for it, and what that consists of."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from gpusim.fragment.replay import replay
from gpusim.fragment.requests import of_trace
from gpusim.policies import registry
from gpusim.trace.roles import PARAMETER, ROLES, UNKNOWN, lives, roles
from gpusim.trace.stats import ROUND, live_bytes
from gpusim.trace.trace import Trace

BYTES_PER_PARAMETER = 16  # the rule of thumb for mixed-precision training with Adam (Rajbhandari et al., ZeRO, section 3.1)


@dataclass(frozen=True, eq=False)
class Need:
    """A program, and what it holds when most is alive.  Sizes in bytes, each tensor rounded up to 512.

    live       the most that is alive at once
    reserved   the most that PyTorch's allocator takes from a device that never refuses
    """

    trace: Trace
    live: int
    reserved: int

    @property
    def fragmentation(self) -> int:
        """What is reserved beyond what is alive."""
        return max(0, self.reserved - self.live)

    @cached_property
    def by_role(self) -> dict[str, int]:
        """Bytes alive at the peak by role, roles without bytes left out; then the fragmentation."""
        trace = self.trace
        size = -(-trace.size // ROUND) * ROUND
        at = int(live_bytes(trace, size).argmax()) if trace.events else 0
        born, died = lives(trace)
        alive = (born <= at) & (died > at)
        held = np.bincount(roles(trace)[alive], size[alive].astype(float), UNKNOWN + 1)
        found = {name: int(bytes_) for name, bytes_ in zip(ROLES, held, strict=True) if bytes_}
        return {**found, "fragmentation": self.fragmentation}

    @cached_property
    def parameters(self) -> int:
        """Bytes of the parameters, buffers among them."""
        return int(self.trace.size[roles(self.trace) == PARAMETER].sum())


def need(trace: Trace) -> Need:
    """Replays the program's requests through PyTorch's allocator, without a limit."""
    size = -(-trace.size // ROUND) * ROUND
    live = int(live_bytes(trace, size).max(initial=0))
    return Need(trace, live, replay(of_trace(trace), registry.get("place", "pytorch")).held_peak)


def rule_of_thumb(trace: Trace) -> int | None:
    """16 bytes for each parameter of a training program; None where nothing is trained or parameters have no type.

    The number of parameters follows from their bytes and the type of the operators that update them.
    """
    from gpusim.trace.roles import STEP, phase_kinds

    weights = roles(trace) == PARAMETER
    trains = (phase_kinds(trace) == STEP).any()
    if not trains or not weights.any():
        return None
    return BYTES_PER_PARAMETER * count(trace)


def count(trace: Trace) -> int:
    """How many parameters: their bytes over those of the type that most of the bytes are read as."""
    widths = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2, "float8_e4m3fn": 1, "float8_e5m2": 1}
    weights = np.flatnonzero(roles(trace) == PARAMETER)
    first = np.full(trace.tensors, -1, np.int64)
    op = np.repeat(np.arange(trace.ops), np.diff(trace.read_start))
    first[trace.read_id[::-1]] = op[::-1]
    total, known = 0.0, 0
    for tensor in weights.tolist():
        o = first[tensor]
        word = trace.dtypes[trace.dtype[o]] if o >= 0 and trace.dtype[o] >= 0 else ""
        if word in widths:
            total += trace.size[tensor] / widths[word]
            known += int(trace.size[tensor])
    everything = int(trace.size[weights].sum())
    return round(total * everything / known) if known else everything // 4
