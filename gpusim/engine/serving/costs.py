"""What a step costs: by a model of the machine (`machine.serving`), or given in a few numbers."""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import numpy as np

from gpusim.base.compiled import Placed, address, by_pointer, entry, tables_at
from gpusim.base.tables import filled, signature
from gpusim.engine.serving.tables import COST
from gpusim.machine.serving.step import PARTS, step_interval, step_time
from gpusim.policies.schedule.parts.tables import N_STEP, step_at


class StepCost:
    """Where the compiled cost of a step is, and the tables that it reads."""

    def __init__(self, function: Any, tables: Any, kind: Any) -> None:
        self.tables = tables
        self._placed = Placed(tables, kind)
        self.own, self.address = self._placed.address, address(function, COST)


@by_pointer
class LinearTables(NamedTuple):
    """ns: of a step, of each prompt token, of each request that makes a token, of each token that one token attends to."""

    ns: Annotated[Any, np.float64, 4]


LINEAR = signature(LinearTables)
linear_at = tables_at(LINEAR)


@entry(COST)
def linear(at: int, step: int) -> int:
    """ns of the step whose composition stands at `step`."""
    ns, s = linear_at(at).ns, step_at(step)
    total = ns[0]
    for i in range(s.word[N_STEP]):
        n, seen = s.tokens[i], s.before[i]
        total += (ns[2] if n == 1 else ns[1] * n) + ns[3] * n * (seen + 0.5 * (n + 1))
    return max(1, round(total))


def linear_cost(step: float, prompt_token: float = 0.0, output_token: float = 0.0, attended: float = 0.0) -> StepCost:
    """Steps of so many ns each; for each token of a prompt, each request that decodes, each token that a token attends to."""
    return StepCost(linear, filled(LinearTables, {}, ns=np.array([step, prompt_token, output_token, attended])), LINEAR)


@by_pointer
class ModelledTables(NamedTuple):
    """The numbers of `machine.serving.step`, the parts of the latest step, ns, and their sums over all steps."""

    numbers: Annotated[Any, np.float64, "numbers"]
    parts: Annotated[Any, np.int64, len(PARTS)]
    summed: Annotated[Any, np.int64, len(PARTS)]


MODELLED = signature(ModelledTables)
modelled_at = tables_at(MODELLED)


@entry(COST)
def modelled(at: int, step: int) -> int:
    """ns of the step whose composition stands at `step`."""
    m, s = modelled_at(at), step_at(step)
    ns = step_time(m.numbers, s.before, s.tokens, s.word[N_STEP], m.parts)
    for part in range(m.parts.size):
        m.summed[part] += m.parts[part]
    return max(1, ns)


class ModelledCost(StepCost):
    """The step times of a model on a machine."""

    def __init__(self, numbers: Any) -> None:
        super().__init__(modelled, filled(ModelledTables, {}, numbers=numbers), MODELLED)

    def parts(self) -> dict[str, int]:
        """ns of all steps so far, by part."""
        return dict(zip(PARTS, self.tables.summed.tolist(), strict=True))

    def interval(self) -> tuple[float, float]:
        """Between which multiples of their time all steps so far are, four times out of five."""
        bounds = np.zeros(2)
        step_interval(self.tables.numbers, self.tables.summed, bounds)
        total = max(int(self.tables.summed.sum()), 1)
        return float(bounds[0] / total), float(bounds[1] / total)
