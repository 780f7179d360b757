"""What a step costs where a table says what prompts and tokens take: lines between its sizes, and on beyond them.

A step of prompts alone, or of tokens alone, takes what the table says of as many tokens; one of both takes what prompts of as
many take, times a factor.  A row is of a prompt when it has several tokens, or the first.  What is lost by rounding to a ns is
made up for by the next step.
"""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import numpy as np

from gpusim.base.compiled import by_pointer, entry, kernel, tables_at
from gpusim.base.errors import GpusimError
from gpusim.base.tables import filled, signature
from gpusim.engine.serving.costs import StepCost
from gpusim.engine.serving.tables import COST
from gpusim.machine.serving.build import StepParts
from gpusim.machine.serving.given import GivenStepTimes
from gpusim.policies.schedule.parts.tables import N_STEP, step_at

f8 = np.float64
STEP = "step"
"""The one part of a step whose time is given."""


@by_pointer
class TabledTables(NamedTuple):
    """Of steps of so many tokens: ns of prompts, and of tokens."""

    tokens: Annotated[Any, f8, "sizes"]
    prompt: Annotated[Any, f8, "sizes"]
    token: Annotated[Any, f8, "sizes"]
    mixed: Annotated[Any, f8, 1]
    owed: Annotated[Any, f8, 1]  # ns that steps so far should have taken and did not
    summed: Annotated[Any, np.int64, 1]


TABLED = signature(TabledTables)
tabled_at = tables_at(TABLED)


@kernel
def on_line(x: Any, y: Any, at: float) -> float:
    """y where x is `at`."""
    i, high = 1, x.size - 1
    while i < high:
        middle = (i + high) // 2
        if x[middle] < at:
            i = middle + 1
        else:
            high = middle
    return float(y[i - 1] + (y[i] - y[i - 1]) / (x[i] - x[i - 1]) * (at - x[i - 1]))


@entry(COST)
def tabled(at: int, step: int) -> int:
    """ns of the step whose composition stands at `step`."""
    m, s = tabled_at(at), step_at(step)
    tokens, prompts, count = 0, 0, s.word[N_STEP]
    for i in range(count):
        tokens += s.tokens[i]
        prompts += s.tokens[i] > 1 or s.before[i] == 0
    exact = on_line(m.tokens, m.prompt if prompts else m.token, float(tokens))
    if 0 < prompts < count:
        exact *= m.mixed[0]
    took = max(1, round(exact + m.owed[0]))
    m.owed[0] += exact - took
    m.summed[0] += took
    return took


class TabledCost(StepCost):
    """Where the compiled cost of a step is, and what the steps so far took."""

    def __init__(self, times: GivenStepTimes) -> None:
        """Raises GpusimError for times that fall so fast with the size that a step of one token would take none."""
        for what, ns in (("prompts", times.prompt), ("tokens", times.token)):
            first = ns[0] - (ns[1] - ns[0]) / (times.tokens[1] - times.tokens[0]) * (times.tokens[0] - 1.0)
            if first <= 0:
                raise GpusimError(f"by the line through the first times of {what}, a step of one token takes {first:.0f} ns")
        columns = {"tokens": times.tokens, "prompt": times.prompt, "token": times.token, "mixed": np.array([times.mixed])}
        self.tables = filled(TabledTables, {}, **columns)
        super().__init__(tabled, self.tables, TABLED)

    def spent(self) -> StepParts:
        """ns of all steps so far; nothing is known of an error."""
        ns = int(self.tables.summed[0])
        return StepParts(ns, {STEP: ns}, float(ns), float(ns))
