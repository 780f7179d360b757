"""The rival when it prefetches: copies to the device go by the operator that waits for them, and may be called off.

Prefetches wait in a queue of their own.  Of two copies that may start, the one that an operator wants earlier goes; a prefetch
is wanted when an operator uses its tensor, and if copies that nothing waits for stand before it, it joins the other queue.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Generator
from typing import Any

from simpy_rival import Activity, Rival, merge


class RivalAhead(Rival):
    """`due`: number of the operator that waits for a copy; `brought`: copies of prefetched tensors that nothing has used."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.early = len(self.open)
        self.copies.append(self.early)
        self.open.append(deque())
        self.limits.append(self.limits[self.into])
        self.waiting: dict[int, deque[Activity]] = {self.into: deque(), self.early: deque()}
        self.due: dict[int, float] = {}  # by number of the copy
        self.off: set[int] = set()       # numbers of copies that have been called off
        self.over: set[int] = set()      # ... of those that are done, or passed over
        self.brought: dict[int, Activity] = {}
        self.serving = False
        self.latest = -1                 # operator

    # --- the engine of copies in ------------------------------------------------------------------------------------------

    def copy_engine(self, queue: int, direction: int) -> Generator[Any, Any, None]:
        if queue == self.out:
            yield from super().copy_engine(queue, direction)

    def submit(self, queue: int, ns: int, size: int, *needs: dict[int, Activity]) -> Activity:
        if queue not in self.waiting:
            return super().submit(queue, ns, size, *needs)
        activity = Activity(self.count, ns, size, {}, self.env.event())
        self.count += 1
        for need in needs:
            merge(activity.needs, need)
        self.open[queue].append(activity)
        self.waiting[queue].append(activity)
        self.due[activity.number] = math.inf if queue == self.early else self.latest
        return activity

    def finish(self, activity: Activity, queue: int) -> None:
        if queue in self.waiting:
            self.serving = False
            self.leave(activity, queue)
            activity.needs.clear()
            self.end = self.env.now
        else:
            super().finish(activity, queue)
        self.kick()

    def leave(self, activity: Activity, queue: int) -> None:
        """Done or passed over; the queue is shorter when all before it are as well."""
        self.over.add(activity.number)
        activity.done.succeed()
        while self.open[queue] and self.open[queue][0].number in self.over:
            self.open[queue].popleft()

    def first(self, queue: int) -> Activity | None:
        """The first copy of the queue, if it may start."""
        waiting = self.waiting[queue]
        while waiting and waiting[0].number in self.off:
            self.leave(waiting.popleft(), queue)
        if waiting and all(need.done.triggered for other, need in waiting[0].needs.items() if other != queue):
            return waiting[0]
        return None

    def kick(self) -> None:
        """Start the copy whose turn it is."""
        found = [(self.due[copy.number], queue != self.into, queue) for queue in self.waiting if (copy := self.first(queue))]
        if found and not self.serving:
            queue = min(found)[2]
            self.serving = True
            self.env.process(self.serve(self.waiting[queue].popleft(), queue))

    def serve(self, copy: Activity, queue: int) -> Generator[Any, Any, None]:
        yield self.env.timeout(self.m.latency)
        yield self.link.transfer(0, copy.size)
        self.finish(copy, queue)

    # --- the host ---------------------------------------------------------------------------------------------------------

    def operator(self, number: int, stream: int) -> None:
        for u, _ in self.accesses[number]:
            self.locked.add(u)
        for u, _ in self.accesses[number]:
            if self.tensors[u].slot < 0:
                self.bring_in(u)
            elif u in self.brought:
                self.claim(u, number)
        super().operator(number, stream)
        for u, _ in self.accesses[number]:
            self.brought.pop(u, None)
        self.latest = number
        self.kick()

    def prefetch(self, number: int) -> None:
        self.bringing = self.early
        super().prefetch(number)
        self.bringing = self.into
        self.kick()

    def bring_in(self, u: int) -> bool:
        if not super().bring_in(u):
            return False
        if self.bringing == self.early and self.tensors[u].data:
            self.brought[u] = self.tensors[u].use[self.early]
        return True

    def stands(self, u: int) -> bool:
        """Its prefetch waits, and what it would copy is still on the host."""
        copy = self.brought.get(u)
        return copy is not None and self.tensors[u].on_host and copy in self.waiting[self.early]

    def claim(self, u: int, number: int) -> None:
        copy = self.brought[u]
        if not self.stands(u) or self.due[copy.number] < math.inf:
            return
        for other in self.waiting[self.early]:
            if other is copy:
                self.due[copy.number] = number
                return
            if other.number not in self.off and self.due[other.number] == math.inf:
                break
        moved = self.submit(self.into, 0, self.block, copy.needs)
        self.due[moved.number] = number
        self.call_off(u)
        self.tensors[u].after[self.into] = self.tensors[u].use[self.into] = moved

    def call_off(self, u: int) -> None:
        copy, tensor = self.brought.pop(u), self.tensors[u]
        self.off.add(copy.number)
        tensor.use.pop(self.early, None)
        tensor.after.pop(self.early, None)
        if self.early in copy.needs:
            tensor.after[self.early] = copy.needs[self.early]

    def evict(self, u: int) -> None:
        self.give_up(u)
        super().evict(u)

    def destroy(self, u: int) -> None:
        self.give_up(u)
        super().destroy(u)
        self.kick()

    def give_up(self, u: int) -> None:
        if self.stands(u):
            self.call_off(u)
            self.swap_ins -= 1
        self.brought.pop(u, None)
