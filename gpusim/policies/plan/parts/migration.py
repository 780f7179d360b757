"""G10's planner: which idle stretches of which tensors are spent elsewhere, and when each leaves and comes back.

It knows the program: how long each kernel takes, and how many bytes are alive during it.  As long as some kernel has more than
the target, it takes the stretch with the most benefit (bytes times the time for which they would be missing where there is too
much), plans its way out and back within what the links can still carry during each kernel, and books both.  At last each way
back starts as early as the memory allows.

Source: H. Zhang et al., "G10: Enabling an efficient unified GPU memory and storage architecture with smart tensor migrations",
MICRO 2023; the rules as in its artifact, github.com/platformxlab/G10, src/analysis.cc.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

I64 = npt.NDArray[np.int64]
F64 = npt.NDArray[np.float64]

FLASH, HOST, BACK = range(3)  # the slow place below, reached over part of the link to the near one; and the device


@dataclass(frozen=True)
class Stretches:
    """Idle stretches: the tensor is not used by the kernels begin .. end - 1, but by those before and after.  G rows."""

    tensor: I64
    begin: I64
    end: I64  # below `begin`: the stretch goes on into the next iteration

    def __len__(self) -> int:
        return len(self.tensor)


@dataclass(frozen=True)
class Costs:
    """What the planner takes the machine for; times in any one unit, rates in bytes per unit."""

    host_rate: float        # each way, of all that moves
    flash_rate: float       # each way; 0: there is no flash
    fault: float            # time before a copy begins
    flash: float            # the same, added by flash
    host_capacity: int      # bytes
    delta: float = 0.5      # a copy is taken to be late by this share of its time


Step = tuple[int, int, int]  # when this kernel comes, this tensor goes to FLASH, to HOST or BACK


class Lane:
    """One direction: what flash and the whole link can carry during each kernel, and what is booked of it."""

    def __init__(self, time: F64, costs: Costs) -> None:
        length = np.diff(time)
        self.capacity = np.stack([costs.flash_rate * length, costs.host_rate * length])
        self.used = np.zeros_like(self.capacity)

    def free(self, place: int) -> F64:
        """(K,) bytes that can still move during each kernel."""
        return np.maximum(self.capacity[place] - self.used[place], 0.0)

    def until(self, place: int, size: Any, begin: Any) -> Any:
        """The kernel during which `size` bytes that leave from kernel `begin` on have left; the last one if none."""
        sums = np.concatenate(([0.0], np.cumsum(self.free(place))))
        end = np.searchsorted(sums, sums[begin] + size) - 1
        return np.clip(end, begin, len(sums) - 2)

    def since(self, place: int, size: Any, end: Any) -> Any:
        """The kernel from which on `size` bytes can come that are needed by kernel `end`; the first one if none."""
        sums = np.concatenate(([0.0], np.cumsum(self.free(place))))
        begin = np.searchsorted(sums, sums[end] - size, side="right") - 1
        return np.clip(begin, 0, np.maximum(end - 1, 0))

    def book(self, place: int, size: float, begin: int) -> None:
        """Take what `size` bytes need from kernel `begin` on.  What goes to flash uses the link; what goes to the host takes
        from flash where it leaves too little of the link."""
        capacity, used = self.capacity, self.used
        for k in range(begin, capacity.shape[1]):
            free = capacity[place, k] - used[place, k]
            if free <= 0:
                continue
            moved = min(size, free)
            used[place, k] += moved
            if place == FLASH:
                used[HOST, k] += moved
            else:
                spare = capacity[HOST, k] - capacity[FLASH, k]
                over = capacity[FLASH, k] if size > free else max(0.0, used[HOST, k] - spare)
                used[FLASH, k] = min(capacity[FLASH, k], used[FLASH, k] + over)
            size -= moved
            if size <= 0:
                return


class Planner:
    """The plan for one program on one machine.

    time      (K + 1,) when each kernel begins if nothing waits, and when the last one ends
    alive     (K,) bytes alive during each kernel; the planner lowers it as it goes
    size      (T,) bytes
    crowded   bytes above which a kernel has too many
    target    bytes that no kernel shall exceed
    """

    def __init__(
        self, time: F64, alive: I64, size: I64, stretches: Stretches, costs: Costs, crowded: int, target: int
    ) -> None:  # fmt: skip
        self.time, self.alive, self.size, self.gaps, self.costs = time, alive.astype(np.int64), size, stretches, costs
        self.crowded, self.target = crowded, target
        self.out, self.back = Lane(time, costs), Lane(time, costs)
        self.host = np.zeros(len(alive), np.int64)  # bytes in the host during each kernel
        self.length = time[stretches.end] - time[stretches.begin]
        self.looped = stretches.end < stretches.begin
        self.length[self.looped] += time[-1]
        self.weight = self.length * size[stretches.tensor]
        self.considered = np.zeros(len(stretches), bool)
        self.moved = np.zeros(len(stretches), bool)
        self.decided: list[Step] = []
        self.returns: list[tuple[int, int, int]] = []  # kernel, tensor, the first kernel that may be without it

    def steps(self) -> list[Step]:
        """All moves, in the order in which they were decided; the ways back within the iteration last, by kernel."""
        while self.excess():
            g = self.best()
            if g < 0:
                break
            self.consider(g)
        return self.decided + self._early()

    def excess(self) -> bool:
        return bool((self.alive > self.target).any())

    def benefit(self) -> F64:
        """(G,) bytes times time that they are in the way, of the stretches not considered yet: half of the way out to half of
        the way back counts."""
        size, begin, end = self.size[self.gaps.tensor], self.gaps.begin, self.gaps.end
        sums = np.concatenate(([0.0], np.cumsum(np.diff(self.time) * (self.alive > self.crowded))))
        place = FLASH if self.costs.flash_rate else HOST
        gone, back = self.out.until(place, size // 2, begin), self.back.since(place, size // 2, end)
        useful = np.maximum(sums[back] - sums[gone], 0.0)
        useful[self.looped] = (sums[-1] - sums[begin] + sums[end])[self.looped]
        return np.where(self.considered, 0.0, size * useful)

    def best(self) -> int:
        """The stretch with the most benefit; -1 if none has any.  The longer and larger one of equals."""
        benefit = self.benefit()
        most = benefit.max(initial=0.0)
        if most <= 0:
            return -1
        same = np.flatnonzero(benefit >= most * (1 - 1e-12))
        return int(same[np.argmax(self.weight[same])])

    def consider(self, g: int) -> None:
        """Move the tensor out of the way in stretch g, if that helps and pays."""
        self.considered[g] = True
        if self._kernels(g) == 1 or not (self._during(g) > self.target).any():
            return
        if self.looped[g]:
            self._around(g)
        else:
            self._within(g)

    def _kernels(self, g: int) -> int:
        n = int(self.gaps.end[g] - self.gaps.begin[g])
        return n + len(self.alive) if self.looped[g] else n

    def _during(self, g: int) -> I64:
        begin, end = self.gaps.begin[g], self.gaps.end[g]
        return np.concatenate([self.alive[begin:], self.alive[:end]]) if self.looped[g] else self.alive[begin:end]

    def _took(self, place: int, size: int) -> float:
        """Time of one copy."""
        if place == FLASH:
            return self.costs.flash + self.costs.fault + size / self.costs.flash_rate
        return self.costs.fault + size / self.costs.host_rate

    def _pays(self, place: int, g: int, size: int) -> bool:
        """Is the stretch longer than both ways, one of them late?"""
        if place == FLASH and not self.costs.flash_rate:
            return False
        return bool(self.length[g] > (2 + self.costs.delta) * self._took(place, size))

    def _fits_host(self, size: int) -> bool:
        return int(self.host.max(initial=0)) <= self.costs.host_capacity - size

    def _within(self, g: int) -> None:
        """Out and back within the iteration."""
        begin, end, tensor = int(self.gaps.begin[g]), int(self.gaps.end[g]), int(self.gaps.tensor[g])
        size = int(self.size[tensor])
        if self._pays(FLASH, g, size):
            soon = int(np.searchsorted(self.time, self.time[begin] + self._took(FLASH, size), side="right")) - 1
            place = HOST if self.flash_is_busy(begin, soon) and self._fits_host(size) else FLASH
        elif self._pays(HOST, g, size) and self._fits_host(size):
            place = HOST
        else:
            return
        gone, back = int(self.out.until(place, size, begin)), int(self.back.since(place, size, end))
        if back <= gone:
            return
        self.out.book(place, size, begin)
        self.back.book(place, size, back)
        self.alive[gone + 1 : back] -= size
        if place == HOST:
            self.host[begin:end] += size
        self.moved[g] = True
        self.decided.append((begin, tensor, place))
        self.returns.append((back, tensor, gone + 1))

    def _around(self, g: int) -> None:
        """Out and back across the end of the iteration, by the copies' times alone."""
        kernels, tensor = len(self.alive), int(self.gaps.tensor[g])
        begin, end, size = int(self.gaps.begin[g]), int(self.gaps.end[g]), int(self.size[tensor])
        if self._pays(FLASH, g, size):
            place = FLASH
        elif self._pays(HOST, g, size) and self._fits_host(size):
            place = HOST
        else:
            return
        twice = np.concatenate([self.time, self.time[-1] + self.time[1:]])
        took = self._took(place, size)
        gone = int(np.searchsorted(twice, twice[begin] + took, side="right")) - 1
        back = int(np.searchsorted(twice, twice[end + kernels] - (1 + self.costs.delta) * took, side="right")) - 1
        self.alive[np.arange(gone + 1, back) % kernels] -= size
        if place == HOST:
            self.host[np.arange(begin, end + kernels) % kernels] += size
        if back != begin:
            self.moved[g] = True
            self.decided += [(begin, tensor, place), (back % kernels, tensor, BACK)]

    def flash_is_busy(self, first: int, last: int) -> bool:
        """Is all booked that flash could take during these kernels?"""
        return not (self.out.free(FLASH)[first : last + 1] > 0).any()

    def has_room(self, kernel: int, size: int) -> bool:
        """May so many bytes be back during this kernel already?"""
        return int(self.alive[kernel]) + size <= self.target

    def by_return(self) -> list[tuple[int, int, int]]:
        return sorted(self.returns, key=lambda r: r[0])

    def _early(self) -> list[Step]:
        """The ways back, each as early as no kernel then exceeds the target."""
        steps = []
        for back, tensor, first in self.by_return():
            early = back
            while early > first and self.has_room(early - 1, int(self.size[tensor])):
                early -= 1
            self.alive[early:back] += self.size[tensor]
            steps.append((early, tensor, BACK))
        return steps
