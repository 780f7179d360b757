"""What a step costs as `machine.serving` has it: of a model on a machine, with the parts of all steps so far."""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import numpy as np

from gpusim.base.compiled import by_pointer, entry, tables_at
from gpusim.base.tables import filled, signature
from gpusim.engine.serving.costs import StepCost
from gpusim.engine.serving.tables import COST, NEEDS
from gpusim.machine.serving import moved
from gpusim.machine.serving import step as steps
from gpusim.machine.serving.build import ServedStepTimes, StepParts
from gpusim.policies.schedule.parts.tables import BESIDE, N_STEP, step_at


@by_pointer
class ModelledTables(NamedTuple):
    """The table of step times; ns of the parts of the latest step and, last, of what it hides; of all steps, in the order of
    `steps.PARTS`.

    bytes  what steps move, in the order of `machine.serving.moved`
    """

    numbers: Annotated[Any, np.float64, "numbers"]
    bytes: Annotated[Any, np.float64, moved.NUMBERS]
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


@entry(NEEDS)
def modelled_needs(at: int, step: int, needs: Any) -> int:
    """ns of the parts of the latest step, and bytes/ns that they need of memory, or of wires."""
    m, s = modelled_at(at), step_at(step)
    tokens, context = 0, 0
    for i in range(s.word[N_STEP]):
        tokens += s.tokens[i]
        context += s.before[i] + 1 if s.tokens[i] == 1 else 0  # a prompt's tokens read what is in the cache of its processors
    b = m.bytes
    touched = 1.0 - (1.0 - b[moved.CHOSEN] / b[moved.EXPERTS]) ** tokens
    sizes = (
        b[moved.WEIGHTS] + b[moved.EXPERT_WEIGHTS] * touched, b[moved.CACHE] * context,
        b[moved.OTHER] * tokens + b[moved.SAMPLING] * s.word[N_STEP], b[moved.SENT] * tokens,
    )  # fmt: skip
    parts = (m.parts[steps.GEMM], m.parts[steps.ATTENTION], m.parts[steps.OTHER], m.parts[steps.COLLECTIVES])
    for part in range(4):
        needs[2 * part] = parts[part]
        needs[2 * part + 1] = sizes[part] / parts[part] if parts[part] > 0 else 0.0
    return 0


class ModelledCost(StepCost):
    """Where the compiled cost of a step is, and what the steps so far took."""

    def __init__(self, times: ServedStepTimes) -> None:
        self.times = times
        bytes_of = moved.moved(times.model, times.ways)
        self.tables = filled(ModelledTables, {"numbers": len(times.table)}, numbers=times.table, bytes=bytes_of)
        super().__init__(modelled, self.tables, MODELLED, modelled_needs)

    def spent(self) -> StepParts:
        """ns of all steps so far, by part, and between which ns they are four times out of five."""
        bounds = np.zeros(2)
        steps.step_interval(self.times.table, self.tables.summed, bounds)
        parts = dict(zip(steps.PARTS, self.tables.summed.tolist(), strict=True))
        return StepParts(sum(parts.values()), parts, float(bounds[0]), float(bounds[1]))
