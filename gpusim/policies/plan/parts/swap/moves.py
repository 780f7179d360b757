"""Small changes of a plan, drawn at random: what a local search tries."""

from __future__ import annotations

import numpy as np

from gpusim.policies.plan.parts.swap.idle import idle, in_time, schedule
from gpusim.policies.planning import EVICT, PREFETCH, Schedule, View

SMALL = 1000  # a tensor below this part of the memory is not worth a move


class Moves:
    """A plan as the choice among idle stretches that it is, and changes of it.

    leave, back  (G,) the triggers of each stretch; `leave` is -1 where the tensor stays
    """

    def __init__(self, view: View, seed: int) -> None:
        stretches = idle(view)
        self._all = stretches.of(np.lexsort((stretches.begin, stretches.unit)))
        self._key = self._all.unit * (len(view.work.duration) + 1) + self._all.end
        self._operators = len(view.work.duration) + 1
        self._in_time = in_time(view, self._all)
        self._worth = np.flatnonzero(self._all.size * SMALL >= view.capacity)
        self._draw = np.random.default_rng(seed)

    def begin(self, plan: Schedule) -> None:
        """Go on from this plan."""
        leave, back = np.full(len(self._key), -1), self._all.end.copy()
        a = plan.actions
        out, into = a[a["verb"] == EVICT], a[a["verb"] == PREFETCH]
        for rows, triggers, late in ((out, leave, 0), (into, back, 0)):
            at = np.searchsorted(self._key, rows["unit"] * self._operators + rows["at"] + late)
            own = np.minimum(at, max(0, len(self._key) - 1))
            fits = (at < len(self._key)) & (self._all.unit[own] == rows["unit"]) & (self._all.begin[own] < rows["at"])
            triggers[own[fits]] = rows["at"][fits]
        self._leave, self._back = leave, back
        self._next = (leave, back)

    def changed(self) -> Schedule:
        """The plan with one thing changed."""
        leave, back = self._leave.copy(), self._back.copy()
        self._next = (leave, back)
        if len(self._worth):
            row = self._worth[self._draw.integers(len(self._worth))]
            begin, end = self._all.begin[row], self._all.end[row]
            if leave[row] < 0:
                leave[row], back[row] = begin + 1, self._in_time[row]
            elif self._draw.random() < 0.5:
                leave[row] = -1
            else:
                back[row] = self._draw.integers(begin + 3, end + 1)
        rows = leave >= 0
        return schedule(self._all.of(rows), back[rows], leave[rows])

    def keep(self) -> None:
        """The latest change stays."""
        self._leave, self._back = self._next
