"""Which part of which step a moment of a profile is in: step5.fwd, step5.bwd, step5.opt, step5.zero, as traces name them."""

from __future__ import annotations

from bisect import bisect_right
from typing import Any

from gpusim.trace.importers.kineto_events import DeviceEvents
from gpusim.trace.importers.nesting import Nesting

_BACKWARD = ("autograd::engine::evaluate_function", "torch::autograd::AccumulateGrad")  # the second alone before 2021
_MARKS = {"Optimizer.step#": "opt", "Optimizer.zero_grad#": "zero"}


class ProfiledPhases:
    def __init__(self, events: DeviceEvents, nesting: Nesting) -> None:
        self._steps, self._nesting = events.steps, nesting
        self._names = [operator.name for operator in events.operators]
        self._starts = [step.start for step in events.steps]
        main = {step.thread for step in events.steps}
        # PyTorch runs the backward of a GPU in a thread of its own.
        self._backward = {o.thread for o in events.operators if o.name.startswith(_BACKWARD)} - main
        self._backwards = sorted(o.start for o in events.operators if o.name.startswith(_BACKWARD))
        self._marks: dict[Any, list[tuple[int, int, str]]] = {}
        for mark in events.annotations:
            for prefix, what in _MARKS.items():
                if mark.name.startswith(prefix):
                    self._marks.setdefault(mark.thread, []).append((mark.start, mark.end, what))

    def of(self, time: int, thread: Any, operator: int) -> str:
        """The phase at this time in this thread, inside of this operator (-1 for none)."""
        at = bisect_right(self._starts, time) - 1
        step = f"step{self._steps[at].name.partition('#')[2]}." if at >= 0 else ""
        part = self._part(time, thread, operator)
        if part == "fwd" and at >= 0 and not self._marks:  # before 2021 optimizers leave no marks: they follow the backward
            latest = bisect_right(self._backwards, time) - 1
            part = "opt" if latest >= 0 and self._backwards[latest] >= self._starts[at] else "fwd"
        return step + part

    def _part(self, time: int, thread: Any, operator: int) -> str:
        if thread in self._backward:
            return "bwd"
        marks = self._marks.get(thread, [])
        at = bisect_right(marks, (time, 2**63, "")) - 1
        if at >= 0 and time <= marks[at][1]:
            return marks[at][2]
        outer = self._nesting.outermost(operator)
        return "bwd" if outer >= 0 and self._names[outer].startswith(_BACKWARD) else "fwd"
