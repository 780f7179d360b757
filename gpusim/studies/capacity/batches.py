"""The largest batch that fits: found on the line of what is alive, and then tried with PyTorch's allocator."""

from __future__ import annotations

import math
from functools import cache, cached_property

import numpy as np

from gpusim.base.errors import GpusimError
from gpusim.policies.registry import SHIPPED, Registry
from gpusim.policies.trials.allocator_replay import replay
from gpusim.policies.trials.allocator_requests import of_trace
from gpusim.programs import transforms
from gpusim.programs.transforms.scaling import recorded_size
from gpusim.studies.capacity.settings import USUAL, AllocatorSettings
from gpusim.trace.stats import ROUND, live_bytes
from gpusim.trace.trace import Trace

MOST = 1 << 14  # times the recorded batch
STEP = 1 / 32   # by which a batch shrinks that does not fit after all


class Batches:
    """Batches of one program, up to what `most` bytes can hold; with `chain`, of the program that this makes of it."""

    def __init__(
        self, trace: Trace, most: int, settings: AllocatorSettings = USUAL, chain: str = "none", own: Registry = SHIPPED
    ) -> None:
        self.trace, self.most, self.settings, self.chain, self.own = trace, most, settings, chain, own
        self.recorded = recorded_size(trace, ("batch",))
        self._fits = cache(self._try)

    @cached_property
    def _alive(self) -> tuple[list[float], list[int]]:
        """(times the recorded batch, most bytes alive) in powers of two; empty where nothing grows with the batch."""
        factors, alive = [], []
        factor = 1.0
        while factor <= MOST:
            try:
                made = self._times(factor)
            except GpusimError:
                return [], []
            factors.append(factor)
            alive.append(int(live_bytes(made, -(-made.size // ROUND) * ROUND).max(initial=0)))
            if alive[-1] > self.most:
                return factors, alive
            factor *= 2
        return [], []  # as large as one likes

    def largest(self, capacity: int) -> float | None:
        """The largest that fits, in samples or in recorded batches; 0: none, None: cannot be told."""
        if not self.trace.ops:
            return None
        factors, alive = self._alive
        if not factors:
            return None
        if len(factors) == 1:  # the recorded batch is more than any machine has: the line from an eighth of it
            factors, alive = self._below(factors, alive)
        if not factors:
            return None
        unit = self.recorded or 100
        slope = np.diff(alive) / np.diff(factors)
        at = min(int(np.searchsorted(alive, capacity)), len(alive) - 1)
        k = min(max(0, at - 1), len(slope) - 1)
        found = factors[k] + (capacity - alive[k]) / max(float(slope[k]), 1.0)
        number = math.floor(min(found, MOST) * unit)
        above = number + 1  # does not fit
        while number > 0 and not self._fits(number / unit, capacity):
            above, number = number, number - max(1, math.floor(number * STEP))
        while above - number > 1:
            middle = (above + number) // 2
            above, number = (above, middle) if self._fits(middle / unit, capacity) else (middle, number)
        return max(0, number) / (1 if self.recorded else unit)

    def _below(self, factors: list[float], alive: list[int]) -> tuple[list[float], list[int]]:
        try:
            made = self._times(0.125)
        except GpusimError:
            return [], []
        return [0.125, *factors], [int(live_bytes(made, -(-made.size // ROUND) * ROUND).max(initial=0)), *alive]

    def _try(self, factor: float, capacity: int) -> bool:
        return replay(of_trace(self._times(factor)), self.settings.allocator(), capacity).fits

    def _times(self, factor: float) -> Trace:
        made = self.trace if factor == 1.0 else transforms.apply(self.trace, f"batch(factor={factor!r})")
        return made if self.chain == "none" else transforms.apply(made, self.chain, self.own)
