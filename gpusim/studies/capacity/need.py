"""What a program needs of a GPU's memory: the peak of what PyTorch's allocator reserves for it, and what that consists of."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from gpusim.policies.trials.allocator_replay import replay
from gpusim.policies.trials.allocator_requests import of_trace
from gpusim.studies.capacity.settings import USUAL, AllocatorSettings
from gpusim.trace.roles import PARAMETER, ROLES, STEP, UNKNOWN, lives, phase_kinds, roles
from gpusim.trace.stats import ROUND, live_bytes
from gpusim.trace.trace import I64, OP, Trace

BYTES_PER_PARAMETER = 16  # the rule of thumb for mixed-precision training with Adam (Rajbhandari et al., ZeRO, section 3.1)
_WIDTHS = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2, "float8_e4m3fn": 1, "float8_e5m2": 1}


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


def need(trace: Trace, settings: AllocatorSettings = USUAL) -> Need:
    """Replays the program's requests through PyTorch's allocator, without a limit."""
    size = -(-trace.size // ROUND) * ROUND
    live = int(live_bytes(trace, size).max(initial=0))
    return Need(trace, live, replay(of_trace(trace), settings.allocator()).held_peak)


def rule_of_thumb(trace: Trace) -> int | None:
    """16 bytes for each parameter of a training program; None where nothing is trained or parameters have no type."""
    weights = roles(trace) == PARAMETER
    trains = (phase_kinds(trace) == STEP).any()
    if not trains or not weights.any():
        return None
    return BYTES_PER_PARAMETER * count(trace)


def count(trace: Trace) -> int:
    """How many parameters: the catalogue's number of a model of the zoo, else their bytes over those of their type.

    The type is that of the optimizer's operators that write a parameter; where none does, of the first operator that reads
    it (which autocast may have converted to another type).  Parameters of which neither is known count as the others do.
    """
    if isinstance(known := trace.meta.get("parameters"), int):
        return known
    weights = np.flatnonzero(roles(trace) == PARAMETER)
    width = _width(trace, trace.write_start, trace.write_id, (phase_kinds(trace) == STEP)[trace.kind == OP])
    reading = _width(trace, trace.read_start, trace.read_id, np.ones(trace.ops, np.bool_))
    width = np.where(width > 0, width, reading)[weights]
    size = trace.size[weights]
    known_size = int(size[width > 0].sum())
    total = float((size[width > 0] / width[width > 0]).sum())
    everything = int(size.sum())
    return round(total * everything / known_size) if known_size else everything // 4


def _width(trace: Trace, start: I64, ids: I64, counts: npt.NDArray[np.bool_]) -> I64:
    """(T,) bytes of an element, by the type of the first operator that counts among those of the list; 0: unknown."""
    widths = np.array([_WIDTHS.get(word, 0) for word in trace.dtypes] + [0], np.int64)
    op = np.repeat(np.arange(trace.ops), np.diff(start))
    chosen = counts[op]
    first = np.full(trace.tensors, -1, np.int64)
    first[ids[chosen][::-1]] = op[chosen][::-1]
    return np.where(first >= 0, widths[np.append(trace.dtype, -1)[first]], 0)
