"""What a step costs as `machine.serving` has it: of a model on a machine, with the parts of all steps so far."""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import numpy as np

from gpusim.base.compiled import by_pointer, entry, tables_at
from gpusim.base.tables import filled, signature
from gpusim.engine.serving.costs import StepCost
from gpusim.engine.serving.tables import COST
from gpusim.machine.serving import step as steps
from gpusim.machine.serving.build import ServedStepTimes, StepParts
from gpusim.policies.schedule.parts.tables import BESIDE, N_STEP, step_at


@by_pointer
class ModelledTables(NamedTuple):
    """The table of step times; ns of the parts of the latest step and, last, of what it hides; of all steps, in the order of
    `steps.PARTS`."""

    numbers: Annotated[Any, np.float64, "numbers"]
    parts: Annotated[Any, np.int64, 6]
    summed: Annotated[Any, np.int64, 5]


MODELLED = signature(ModelledTables)
modelled_at = tables_at(MODELLED)


@entry(COST)
def modelled(at: int, step: int) -> int:
    """ns of the step whose composition stands at `step`."""
    m, s = modelled_at(at), step_at(step)
    ns = steps.step_time(m.numbers, s.before, s.tokens, s.word[N_STEP], m.parts)
    for part in range(5):
        m.summed[part] += m.parts[part]
    s.word[BESIDE] = m.parts[steps.HIDDEN]
    return max(1, ns)


class ModelledCost(StepCost):
    """Where the compiled cost of a step is, and what the steps so far took."""

    def __init__(self, times: ServedStepTimes) -> None:
        self.times = times
        self.tables = filled(ModelledTables, {"numbers": len(times.table)}, numbers=times.table)
        super().__init__(modelled, self.tables, MODELLED)

    def spent(self) -> StepParts:
        """ns of all steps so far, by part, and between which ns they are four times out of five."""
        bounds = np.zeros(2)
        steps.step_interval(self.times.table, self.tables.summed, bounds)
        parts = dict(zip(steps.PARTS, self.tables.summed.tolist(), strict=True))
        return StepParts(sum(parts.values()), parts, float(bounds[0]), float(bounds[1]))
