"""Making tensors again instead of moving them: what it costs, and the program that does so."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gpusim.policies.plan.parts.recompute import from_trace
from gpusim.policies.plan.parts.recompute.problem import COMPUTE, PIN
from gpusim.policies.plan.parts.recompute.rewrite import rewrite
from gpusim.policies.plan.parts.recompute.state import AGAIN, CHOSEN, EVENT, FIRST, FREED
from gpusim.policies.plan.parts.swap.idle import F64, Idle, Mask
from gpusim.trace.edit import issued
from gpusim.trace.roles import lives
from gpusim.trace.trace import Trace
from gpusim.trace.workload import Workload

LONGEST = 64  # operators that are run again for one tensor


class Recompute:
    """The tensors of a program that can be recomputed (`recompute.from_trace` says which, and until when)."""

    def __init__(self, work: Workload) -> None:
        self.work = work
        self._traced = from_trace.read(work)
        p = self._traced.program
        self._made_by = np.repeat(np.arange(len(p.cost)), np.diff(p.out_start))
        self._inputs = [ids.tolist() for ids in np.split(p.in_id, p.in_start[1:-1])]
        self._number = np.full(work.trace.tensors, -1)
        self._number[self._traced.unit] = np.arange(len(self._traced.unit))
        self._died = lives(work.trace)[1]
        self._event = issued(work.trace)

    def cost(self, stretches: Idle, never: Mask | None = None) -> F64:
        """(G,) ns of what has to run for each tensor to be there at its stretch's end, what the program has freed by then
        included; infinite where that cannot run again, or is among those to run never (O,)."""
        rows = zip(stretches.unit.tolist(), stretches.end.tolist(), strict=True)
        return np.array([self._cost(unit, end, never) for unit, end in rows])

    def _cost(self, unit: int, end: int, never: Mask | None) -> float:
        p, t = self._traced.program, self._traced
        total, again, waiting = 0, set[int](), [unit]
        while waiting:
            unit = waiting.pop()
            o = int(self._made_by[self._number[unit]])
            if not t.remade[unit] or (never is not None and never[t.op[o]]) or len(again) == LONGEST:
                return math.inf
            if o not in again:
                again.add(o)
                total += int(p.cost[o])
                waiting += [u for u in t.unit[self._inputs[o]].tolist() if self._died[u] < self._event[end]]
        return float(total)

    def instead_of(self, stretches: Idle) -> Trace:
        """The trace in which these tensors are dropped where each stretch begins, and recomputed where they are needed."""
        return rewrite(self.work.trace, self._traced, _Walk(self, stretches).log())


class _Walk:
    """The program from its first action to its last; `here` and `alive` are of the tensors of the replay's program."""

    def __init__(self, of: Recompute, stretches: Idle) -> None:
        self._traced, self._inputs, self._made_by = of._traced, of._inputs, of._made_by.tolist()
        many = len(of._made_by)
        self.here, self.alive, self.pinned = [False] * many, [False] * many, [False] * many
        self.held = [0] * many  # for operators that are about to run
        self._leaving: dict[int, list[int]] = {}  # operator of the trace: what is dropped after it
        for unit, begin in zip(of._number[stretches.unit].tolist(), stretches.begin.tolist(), strict=True):
            self._leaving.setdefault(begin, []).append(unit)
        self._rows: list[tuple[int, int, int]] = []

    def log(self) -> Any:
        """What happened, as `parts/recompute` logs it: what leaves does so before the operator of its action."""
        p, op = self._traced.program, self._traced.op.tolist()
        for action, (verb, arg) in enumerate(zip(p.verb.tolist(), p.arg.tolist(), strict=True)):
            if verb == COMPUTE:
                self._run(arg, FIRST, action)
                for t in self._leaving.get(op[arg], []):
                    self._leave(t, CHOSEN, action + 1)
            elif verb == PIN:
                if not self.here[arg]:
                    self._run(self._made_by[arg], AGAIN, action)
                self.pinned[arg] = True
            else:
                self.alive[arg] = False
                self._leave(arg, FREED, action)
        return np.array([row for row in self._rows if row[2] < len(p.verb)], EVENT)

    def _run(self, o: int, what: int, action: int) -> None:
        """Run an operator when what it reads is there; what came for it alone goes."""
        inputs = self._inputs[o]
        for t in inputs:
            self.held[t] += 1
        for t in inputs:
            if not self.here[t]:
                self._run(self._made_by[t], AGAIN, action)
        self._rows.append((what, o, action))
        out = range(*self._traced.program.out_start[o : o + 2].tolist())
        for t in out:
            self.here[t] = True
            self.alive[t] |= what == FIRST
        for t in inputs:
            self.held[t] -= 1
        for t in (*inputs, *out):
            if not self.alive[t]:
                self._leave(t, FREED, action + (what == FIRST))

    def _leave(self, t: int, what: int, action: int) -> None:
        if self.here[t] and not self.held[t] and not (self.pinned[t] and self.alive[t]):
            self.here[t] = False
            self._rows.append((what, t, action))
