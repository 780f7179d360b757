"""What a step costs that FlexGen's schedule computes: `machine.serving.zigzag` of the step's composition."""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import numpy as np

from gpusim.base.compiled import by_pointer, entry, tables_at
from gpusim.base.tables import filled, signature
from gpusim.engine.serving.costs import StepCost
from gpusim.engine.serving.modelled import ModelledCost
from gpusim.engine.serving.tables import COST
from gpusim.machine.serving import zigzag
from gpusim.machine.serving.build import ServedStepTimes, StepParts
from gpusim.policies.schedule.parts.tables import N_STEP, step_at

NAMES = ("gpu", "cpu", "copies")


@by_pointer
class ZigzagTables(NamedTuple):
    """The plan's numbers; ns of the parts of the latest step, and of all steps; a multiple of all times."""

    plan: Annotated[Any, np.float64, "numbers"]
    parts: Annotated[Any, np.float64, 6]
    summed: Annotated[Any, np.float64, 3]
    pace: Annotated[Any, np.float64, 1]


ZIGZAG = signature(ZigzagTables)
zigzag_at = tables_at(ZIGZAG)


@entry(COST)
def zigzagged(at: int, step: int) -> int:
    """ns of the step whose composition stands at `step`."""
    o, s = zigzag_at(at), step_at(step)
    ns = zigzag.step_ns(o.plan, s.before, s.tokens, s.word[N_STEP], o.parts) * o.pace[0]
    for part in range(3):
        o.summed[part] += o.parts[part] * o.pace[0]
    return max(1, round(ns))


class ZigzagCost(ModelledCost):
    """A plan's steps; `bounds`: multiples of their time between which they are, four times out of five."""

    def __init__(self, times: ServedStepTimes, numbers: zigzag.F64, bounds: tuple[float, float], pace: float = 1.0) -> None:
        super().__init__(times)
        self.bounds, lengths = bounds, {"numbers": numbers.size}
        self.zigzag = filled(ZigzagTables, lengths, plan=numbers, pace=np.array([pace]))
        StepCost.__init__(self, zigzagged, self.zigzag, ZIGZAG)

    def spent(self) -> StepParts:
        """ns of all steps so far: of the GPU, of the CPU, and of copies that both waited for."""
        parts = {name: round(ns) for name, ns in zip(NAMES, self.zigzag.summed, strict=True)}
        total = sum(parts.values())
        return StepParts(total, parts, *(bound * total for bound in self.bounds))
