"""What a step costs where that is given in a few numbers: a constant, and times for each token and each pair that attends."""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import numpy as np

from gpusim.base.compiled import Placed, address, by_pointer, entry, tables_at
from gpusim.base.tables import filled, signature
from gpusim.engine.serving.tables import COST, NEEDS, PARTS
from gpusim.policies.schedule.parts.tables import N_STEP, step_at


class StepCost:
    """Where the compiled cost of a step is, what the step needs of links, and the tables that both read.

    needs  fills in ns and bytes/ns of each part of a step (`tables.PARTS`); None: copies do not slow such steps down
    """

    def __init__(self, function: Any, tables: Any, kind: Any, needs: Any = None) -> None:
        self._placed = Placed(tables, kind)
        self.own, self.address = self._placed.address, address(function, COST)
        self.needs = address(needs, NEEDS) if needs is not None else (0, 0)


@by_pointer
class LinearTables(NamedTuple):
    """ns: of a step, of each prompt token, of each request that makes a token, of each token that one token attends to.

    need  bytes/ns that the whole step needs of the device's memory
    """

    ns: Annotated[Any, np.float64, 4]
    need: Annotated[Any, np.float64, 1]


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


@entry(NEEDS)
def linear_needs(at: int, step: int, needs: Any) -> int:
    """The step is one kernel that reads memory."""
    needs[0], needs[1] = linear(at, step), linear_at(at).need[0]
    for i in range(2, 2 * PARTS):
        needs[i] = 0.0
    return 0


def linear_cost(
    step: float, prompt_token: float = 0.0, output_token: float = 0.0, attended: float = 0.0, need: float = 0.0
) -> StepCost:
    """Steps of so many ns each; for each token of a prompt, each request that decodes, each token that a token attends to.

    need  bytes/ns of the device's memory
    """
    numbers = np.array([step, prompt_token, output_token, attended])
    return StepCost(linear, filled(LinearTables, {}, ns=numbers, need=np.array([need])), LINEAR, linear_needs)
