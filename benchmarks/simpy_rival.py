"""The engine's model of time once more, as one would write it in plain SimPy: the rival of `benchmarks/timed.py`.

It shares no code with gpusim beyond the trace.  Streams and copy engines are processes that serve a store, first in first
out; an activity is an event that others wait for; the link is shared max-min by the two directions.  All tensors have one
size, so that the lowest free address is the smallest number in a heap and no allocator is in the way.
"""

from __future__ import annotations

import heapq
import math
from collections import OrderedDict, deque
from collections.abc import Generator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import simpy

ALLOC, FREE, OP = 0, 1, 2  # event kinds of a trace; this model knows no others
RECENT = 32                # freed blocks that a new one is compared with; older ones count as touching every block
INSTANT = 1e-4             # ns: ends so close together are one


@dataclass
class Activity:
    """A kernel or a copy: `needs` maps a queue to the last of its activities that must be done before."""

    number: int
    ns: int
    size: int
    needs: dict[int, Activity]
    done: simpy.Event


@dataclass
class Tensor:
    data: bool
    live: bool = False
    slot: int = -1           # block on the device, -1 when it is not there
    on_host: bool = False
    after: dict[int, Activity] = field(default_factory=dict)  # what the next use of it waits for
    use: dict[int, Activity] = field(default_factory=dict)    # the last activities that touch its block


def merge(into: dict[int, Activity], more: dict[int, Activity]) -> None:
    """The later activity of each queue."""
    for queue, activity in more.items():
        if queue not in into or into[queue].number < activity.number:
            into[queue] = activity


class Link:
    """Two directions that share a combined rate max-min; fluid time is exact, ends are seen at the next tick."""

    def __init__(self, env: simpy.Environment, rates: tuple[float, float], both: float) -> None:
        self.env, self.own, self.both = env, rates, both
        self.flows: dict[int, list[Any]] = {}  # direction -> [bytes left, rate, event]
        self.tick, self.time = 0, 0.0  # the fluid has run until `time` ns after `tick`: a sum would lose digits in an hour
        self.version = 0

    def transfer(self, direction: int, size: int) -> simpy.Event:
        self.complete()
        self.settle(float(self.env.now - self.tick))
        self.rebase()
        done = self.env.event()
        self.flows[direction] = [float(size), 0.0, done]
        self.share()
        self.plan()
        return done

    def rebase(self) -> None:
        self.time -= self.env.now - self.tick
        self.tick = self.env.now

    def share(self) -> None:
        if len(self.flows) == 1:
            (direction,) = self.flows
            self.flows[direction][1] = min(self.own[direction], self.both)
        elif self.flows:
            slow = 0 if self.own[0] <= self.own[1] else 1
            rate = min(self.own[slow], self.both / 2)
            self.flows[slow][1] = rate
            self.flows[1 - slow][1] = min(self.own[1 - slow], self.both - rate)

    def settle(self, time: float) -> None:
        step = time - self.time
        if step > 0:
            for flow in self.flows.values():
                flow[0] = max(0.0, flow[0] - flow[1] * step)
            self.time = time

    def first_end(self) -> float:
        return min((self.time + left / rate for left, rate, _ in self.flows.values()), default=math.inf)

    def complete(self) -> None:
        """Flows that have ended by now end, at their exact times."""
        while (end := self.first_end()) <= self.env.now - self.tick + INSTANT:
            self.settle(end)
            for direction, (left, rate, done) in list(self.flows.items()):
                if left <= rate * INSTANT:
                    del self.flows[direction]
                    done.succeed()
                    break
            self.share()

    def plan(self) -> None:
        self.version += 1
        self.rebase()
        end = self.first_end()
        if end < math.inf:
            self.env.timeout(max(math.ceil(end - INSTANT), 0)).callbacks.append(partial(self.wake, self.version))

    def wake(self, version: int, _event: simpy.Event) -> None:
        if version == self.version:
            self.complete()
            self.plan()


class Rival:
    """One GPU under LRU with first fit and next-k prefetch; `machine` is gpusim's Machine, read as plain numbers."""

    def __init__(
        self, events: list[tuple[int, int, int]], accesses: list[list[tuple[int, bool]]], durations: list[int],
        data: list[bool], streams: int, block: int, capacity: int, machine: Any, copy_limit: int, ahead: int = 0,
    ) -> None:  # fmt: skip
        """events: (kind, argument, stream); accesses: (tensor, written) of each operator; data: tensors that come with some."""
        self.events, self.accesses, self.durations, self.block, self.m = events, accesses, durations, block, machine
        self.ahead = ahead
        self.env = env = simpy.Environment()
        self.link = Link(env, (machine.h2d, machine.d2h), machine.both)
        self.into, self.out = streams, streams + 1
        self.copies, self.bringing = [self.out, self.into], self.into
        self.stores = [simpy.Store(env) for _ in range(streams + 2)]
        self.open: list[deque[Activity]] = [deque() for _ in self.stores]  # submitted and not done
        self.limits = [machine.queue] * streams + [copy_limit] * 2
        self.tensors = [Tensor(d) for d in data]
        self.lru: OrderedDict[int, None] = OrderedDict()
        self.locked: set[int] = set()
        self.free_slots = list(range(capacity // block))
        self.high = 0                                          # blocks ever in use: more of them are a device call
        self.former: dict[int, dict[int, Activity]] = {}       # slot -> last users
        self.recent: deque[dict[int, Activity]] = deque()
        self.older: dict[int, Activity] = {}
        self.cost = self.count = self.end = 0
        self.swap_ins = self.swap_outs = self.drops = self.prefetches = 0
        for stream in range(streams):
            env.process(self.stream(stream))
        env.process(self.copy_engine(self.into, 0))
        env.process(self.copy_engine(self.out, 1))

    def run(self) -> dict[str, int]:
        host = self.env.process(self.host())
        self.env.run(until=host)
        self.env.run()
        return {
            "makespan_ns": max(self.end, int(host.value)), "h2d_bytes": self.swap_ins * self.block,
            "d2h_bytes": self.swap_outs * self.block, "swap_ins": self.swap_ins, "swap_outs": self.swap_outs,
            "clean_drops": self.drops, "prefetches": self.prefetches,
        }  # fmt: skip

    # --- the device -------------------------------------------------------------------------------------------------------

    def submit(self, queue: int, ns: int, size: int, *needs: dict[int, Activity]) -> Activity:
        activity = Activity(self.count, ns, size, {}, self.env.event())
        self.count += 1
        for need in needs:
            merge(activity.needs, need)
        self.stores[queue].put(activity)
        self.open[queue].append(activity)
        return activity

    def ready(self, activity: Activity, queue: int) -> Generator[Any, Any, None]:
        for other, need in activity.needs.items():
            if other != queue and not need.done.triggered:
                yield need.done

    def finish(self, activity: Activity, queue: int) -> None:
        self.open[queue].popleft()
        activity.needs.clear()
        activity.done.succeed()
        self.end = self.env.now

    def stream(self, queue: int) -> Generator[Any, Any, None]:
        free_at = -self.m.gap
        while True:
            kernel = yield self.stores[queue].get()
            yield from self.ready(kernel, queue)
            wait = free_at + self.m.gap - self.env.now
            if wait > 0:
                yield self.env.timeout(wait)
            yield self.env.timeout(kernel.ns)
            free_at = self.env.now
            self.finish(kernel, queue)

    def copy_engine(self, queue: int, direction: int) -> Generator[Any, Any, None]:
        while True:
            copy = yield self.stores[queue].get()
            yield from self.ready(copy, queue)
            yield self.env.timeout(self.m.latency)
            yield self.link.transfer(direction, copy.size)
            self.finish(copy, queue)

    # --- the host ---------------------------------------------------------------------------------------------------------

    def full(self, queue: int) -> bool:
        return len(self.open[queue]) >= self.limits[queue]

    def host(self) -> Generator[Any, Any, int]:
        for kind, arg, stream in self.events:
            self.cost = 0
            if kind == OP:
                for queue in (*self.copies, stream):
                    while self.full(queue):
                        yield self.open[queue][0].done
                yield self.env.timeout(self.m.submit)
                self.operator(arg, stream)
                if self.ahead:
                    yield self.env.timeout(self.cost)
                    self.cost = 0
                    self.prefetch(arg)
                self.locked = set()
            elif kind == ALLOC:
                self.tensors[arg].live = True
                self.take_block(arg)
                self.lru[arg] = None
                self.cost += self.m.cached
            elif kind == FREE:
                self.destroy(arg)
            if self.cost:
                yield self.env.timeout(self.cost)
        return int(self.env.now)

    def operator(self, number: int, stream: int) -> None:
        accesses, tensors = self.accesses[number], self.tensors
        self.locked = {u for u, _ in accesses}
        for u, _ in accesses:
            if tensors[u].slot < 0:
                self.bring_in(u)
        kernel = self.submit(stream, self.durations[number], 0)
        for u, written in accesses:
            tensor = tensors[u]
            merge(kernel.needs, tensor.after)
            if written:
                merge(kernel.needs, tensor.use)
                tensor.after[stream] = kernel
                tensor.data, tensor.on_host = True, False
            tensor.use[stream] = kernel
            self.lru.move_to_end(u)

    def prefetch(self, number: int) -> None:
        coming = self.accesses[number + 1 : number + 1 + self.ahead]
        proposed = [u for accesses in coming for u, _ in accesses if self.tensors[u].live]
        self.locked.update(proposed)
        for u in proposed:
            if self.tensors[u].slot < 0:
                if any(self.full(queue) for queue in self.copies) or not self.bring_in(u):
                    break
                self.prefetches += self.tensors[u].data

    # --- the memory -------------------------------------------------------------------------------------------------------

    def take_block(self, u: int) -> bool:
        while not self.free_slots:
            victim = next((v for v in self.lru if v not in self.locked), None)
            if victim is None:
                return False
            self.evict(victim)
        tensor = self.tensors[u]
        tensor.slot = slot = heapq.heappop(self.free_slots)
        if slot >= self.high:
            self.high = slot + 1
            self.cost += int(self.m.malloc + self.m.malloc_per_byte * self.block)
        merge(tensor.after, self.older)
        merge(tensor.after, self.former.get(slot, {}))
        return True

    def give_block_back(self, u: int) -> None:
        tensor = self.tensors[u]
        del self.lru[u]
        heapq.heappush(self.free_slots, tensor.slot)
        merge(self.former.setdefault(tensor.slot, {}), tensor.use)
        self.recent.append(tensor.use)
        if len(self.recent) > RECENT:
            merge(self.older, self.recent.popleft())
        tensor.slot, tensor.use = -1, {}

    def evict(self, u: int) -> None:
        tensor = self.tensors[u]
        if tensor.on_host or not tensor.data:
            self.drops += 1
        else:
            copy = self.submit(self.out, 0, self.block, tensor.use, tensor.after)
            self.cost += self.m.submit
            tensor.use[self.out] = tensor.after[self.out] = copy
            tensor.on_host = True
            self.swap_outs += 1
        self.give_block_back(u)
        tensor.after = {self.out: tensor.after[self.out]} if self.out in tensor.after else {}

    def bring_in(self, u: int) -> bool:
        if not self.take_block(u):
            return False
        tensor = self.tensors[u]
        if tensor.data:
            copy = self.submit(self.bringing, 0, self.block, tensor.after)
            self.cost += self.m.submit
            tensor.after[self.bringing] = tensor.use[self.bringing] = copy
            self.swap_ins += 1
        self.lru[u] = None
        return True

    def destroy(self, u: int) -> None:
        if self.tensors[u].slot >= 0:
            self.give_block_back(u)
        self.tensors[u].live = self.tensors[u].on_host = False
        self.tensors[u].after = {}
