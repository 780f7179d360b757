"""G10's plans under its study's conditions: its planner, with what is specific to the study around it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from gpusim.policies.plan.parts.migration import FLASH, Costs, Planner, Step, Stretches
from gpusim.policies.plan.parts.migration import HOST as NEAR
from gpusim.studies.g10.conditions import GIB, Conditions
from gpusim.studies.g10.extent_tables import DEVICE, HOST, NOWHERE, SSD
from gpusim.studies.g10.introsort import introsort
from gpusim.studies.g10.kernel_program import F64, I64, KernelProgram

Hint = tuple[int, int, int]  # kernel, tensor, where to

_TO = (SSD, HOST, DEVICE)  # by the planner's FLASH, HOST, BACK


class StudyPlanner(Planner):
    """The planner with the habits of the study's program, on which its plans depend where nothing else decides."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.order = np.arange(len(self.gaps))

    def steps(self) -> list[Step]:
        """It goes on without benefit, with whatever its sort leaves in front, until that has been considered before."""
        for _ in range(len(self.gaps)):
            if not self.excess():
                break
            introsort(self.order, self.benefit(), self.weight)
            g = int(self.order[0])
            if self.considered[g]:
                break
            self.consider(g)
            self.considered[g] = self._settled(g)
        return self.decided + self._early()

    def benefit(self) -> F64:
        """Across the end of the iteration it steps through times that are one longer than the kernels."""
        benefit = super().benefit()
        length, crowded = np.diff(self.time), self.alive > self.crowded
        second = np.concatenate(([0.0, -self.time[-1] * crowded[0]], length[:-1] * crowded[1:])).cumsum()
        first = np.concatenate(([0.0], (length * crowded).cumsum()))
        around = first[-1] - first[self.gaps.begin] + second[self.gaps.end]
        size = self.size[self.gaps.tensor]
        return np.where(self.looped & ~self.considered, size * around, benefit)

    def flatten(self, kernel: int) -> list[Step]:
        """More that leaves for the SSD, and comes back only on demand, until the memory of this kernel is below 90 % of the
        target: the largest and longest stretches first."""
        introsort(self.order, self.weight, np.zeros(len(self.gaps)))
        steps = []
        for g in map(int, self.order):
            begin, end, tensor = int(self.gaps.begin[g]), int(self.gaps.end[g]), int(self.gaps.tensor[g])
            if self.alive[kernel] < self.target * 0.9:
                break
            if not self.moved[g] and not self.looped[g] and begin <= kernel < end:
                self.alive[kernel] -= self.size[tensor]
                steps.append((begin, tensor, FLASH))
        return steps

    def flash_is_busy(self, first: int, last: int) -> bool:
        """It leaves out the last kernel; what would be gone within one is taken to meet a busy flash."""
        return super().flash_is_busy(first, last - 1)

    def has_room(self, kernel: int, size: int) -> bool:
        """It asks whether there is any room, not how much."""
        return int(self.alive[kernel]) < self.target

    def by_return(self) -> list[tuple[int, int, int]]:
        return [self.returns[i] for i in sort([back for back, _, _ in self.returns])]

    def _settled(self, g: int) -> bool:
        """A stretch that is too short to pay anywhere is considered again and again."""
        size = int(self.size[self.gaps.tensor[g]])
        return bool(
            self._kernels(g) == 1
            or not (self._during(g) > self.target).any()
            or self._pays(FLASH, g, size)
            or self._pays(NEAR, g, size)
        )


def g10(program: KernelProgram, conditions: Conditions) -> list[Hint]:
    """What moves when: made and freed ahead, evicted and brought back; in the order in which it is carried out."""
    planner, lives = _planner(program, conditions)
    return _in_order([*lives, *_hints(planner.steps())])


def g10_direct(program: KernelProgram, conditions: Conditions) -> list[Hint]:
    """The same for a machine without unified memory: nothing is made or freed ahead."""
    planner, _ = _planner(program, conditions)
    fullest = int(planner.alive.argmax())
    steps = planner.steps()
    return _in_order(_hints(steps + planner.flatten(fullest)))


def _hints(steps: Sequence[Step]) -> list[Hint]:
    return [(k, t, _TO[to]) for k, t, to in steps]


def _in_order(hints: list[Hint]) -> list[Hint]:
    return [hints[i] for i in sort([k for k, _, _ in hints])]


def sort(keys: Sequence[int]) -> I64:
    """The order of rising keys that the study's sort makes."""
    order = np.arange(len(keys))
    introsort(order, -np.array(keys, np.float64), np.zeros(len(keys)))
    return order


def times(program: KernelProgram, conditions: Conditions) -> np.ndarray:
    """(K + 1,) us at which each kernel begins when nothing waits."""
    run = program.cycles(conditions.hertz)[0]
    return np.concatenate(([0.0], np.cumsum(run / (conditions.hertz / 1e6))))


def stretches(program: KernelProgram) -> Stretches:
    """All idle stretches, by tensor; of what lives for ever also the one across the end of the iteration."""
    uses: list[list[int]] = [[] for _ in range(program.tensors)]
    for k in range(program.kernels):
        for t in program.walk[k]:
            uses[t].append(k)
    rows = []
    for t, at in enumerate(uses):
        if program.unread[t]:
            continue
        last = int(program.end[t])
        at = [k for k in at if k < last]
        rows += [(t, a + 1, b) for a, b in pairwise(at) if b > a + 1]
        if program.everlasting[t] and at:
            after = (at[-1] + 1) % program.kernels
            if after != at[0]:
                rows.append((t, after, at[0]))
    table = np.array(rows, np.int64).reshape(-1, 3)
    return Stretches(*(np.ascontiguousarray(column) for column in table.T))


def _planner(program: KernelProgram, conditions: Conditions) -> tuple[StudyPlanner, list[Hint]]:
    """The planner, and hints that make tensors ahead of their first use and free them after the last: of as many, by number,
    as it takes to stay within the target."""
    time = times(program, conditions)
    alive = np.full(program.kernels, int(program.size.sum() + program.size[0]), np.int64)
    hints: list[Hint] = []
    target = int(conditions.target * conditions.loosen)
    for t in range(1, program.tensors):
        if not (alive > target).any():
            break
        if program.everlasting[t]:
            continue
        size, begin, end = int(program.size[t]), int(program.begin[t]), int(program.end[t])
        early = time[begin] - size * conditions.alloc_us
        made = max(0, int(np.searchsorted(time, early, side="right")) - 1)
        hints += [(made, t, DEVICE), (end, t, NOWHERE)]
        alive[:made] -= size
        alive[end:] -= size
    costs = Costs(
        conditions.pcie * GIB / 1e6, conditions.ssd * GIB / 1e6, conditions.fault_us, conditions.ssd_us,
        int(conditions.host_gib * GIB),
    )  # fmt: skip
    crowded = int(conditions.device_gib * GIB)
    return StudyPlanner(time, alive, program.size, stretches(program), costs, crowded, target), hints
