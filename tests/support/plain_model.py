"""One program on one device, as plainly as it can be said: a SimPy process for the host, one for each stream.

It shares nothing with gpusim's engine but the numbers of the machine, and is the definition that the engine is compared with.
All memory is there: nothing is swapped, no tensor is freed, an allocation costs what one from a cache does.

Time is whole ns.  What has to be decided at a time is decided when all that happens at it has happened (`Device.decide`):
first come the ends of activities, what they let the host submit, and what is then ready.  Bytes and work flow in continuous
time, as exact fractions; an end is seen at the first whole ns at which it is true.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Iterable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import simpy

from gpusim.machine.constants import Machine
from gpusim.machine.streaming import at as on_curve
from gpusim.trace import trace as tr
from gpusim.trace.trace import Trace

Steps = Generator[Any, Any, None]
NOISE = Fraction(1, 10_000)  # ns: less than this is the rounding of a simulator that counts in floats
LATE = 2                     # SimPy's priority of what comes after all else at a time; its own are 0 and 1
SHARES = frozenset({"sms", "memory", "engines"})
COPIES = (tr.COPY_IN, tr.COPY_OUT)


@dataclass(frozen=True)
class Needs:
    """What the kernels of a program want of the device."""

    width: list[int]      # of each operator the SMs that it can use
    whole: list[int]      # whether its grid is resident at once
    traffic: list[float]  # bytes/ns of memory when it runs at full speed
    sms: int              # that the program may have
    bandwidth: float      # bytes/ns


@dataclass(eq=False)
class Flow:
    """Work in progress: `left` units, at most `cap` units/ns; each unit passes `weight` bytes over each link of `route`."""

    left: Fraction
    cap: Fraction
    route: tuple[str, ...]  # a link twice: each byte passes it twice
    weight: Fraction
    ended: simpy.Event
    speed: Fraction = Fraction(0)


@dataclass(eq=False)
class Activity:
    """An operator that the host has submitted."""

    op: int
    kind: int
    stream: int
    priority: int
    after: list[Activity]
    done: simpy.Event
    admitted: simpy.Event
    came: int = -1  # when it was first in its stream and all that it waits for was done
    start: int = -1
    end: int = -1
    begun: int = -1  # its place in the order of starts
    granted: int = 0
    held: bool = False
    work: Flow | None = None


def fair(flows: Iterable[Flow], links: dict[str, Fraction]) -> None:
    """Max-min: the bytes/ns of all rise together; a flow stays where its cap or a full link stops it."""
    rising = []
    for flow in flows:
        flow.speed = flow.cap
        if flow.weight and flow.route and flow.cap:
            rising.append(flow)
    free = dict(links)
    level = Fraction(0)
    while rising:
        load = {name: sum(flow.route.count(name) for flow in rising) for name in links}
        steps = {name: free[name] / n for name, n in load.items() if n}
        step = min([*steps.values(), *(flow.cap * flow.weight - level for flow in rising)])
        level += step
        for name, n in load.items():
            free[name] -= n * step
        full = {name for name in steps if not free[name]}
        stopped = [f for f in rising if full.intersection(f.route) or f.cap * f.weight == level]
        for flow in stopped:
            flow.speed = level / flow.weight
        rising = [flow for flow in rising if flow not in stopped]


class Fluid:
    """All work in progress on the device, in continuous time."""

    def __init__(self, env: simpy.Environment, links: dict[str, Fraction]) -> None:
        self.env, self.links = env, links
        self.flows: list[Flow] = []
        self.now = Fraction(0)
        self.changes = 0

    def advance(self) -> None:
        """Carry all work on to the present; what is done within it gives way to the others at that very moment."""
        while True:
            fair(self.flows, self.links)
            step = min([self.env.now - self.now, *(f.left / f.speed for f in self.flows if f.speed)])
            for flow in self.flows:
                flow.left -= flow.speed * step
            self.now += step
            done = [f for f in self.flows if f.left <= f.speed * NOISE and (f.left == 0 or self.now == self.env.now)]
            for flow in done:
                self.flows.remove(flow)
                flow.ended.succeed()
            if not done:
                return

    def changed(self) -> None:
        """Look again when the next of the flows will be done, unless something changes before."""
        self.advance()
        self.changes += 1
        ends = [self.now + f.left / f.speed for f in self.flows if f.speed]
        if ends:
            self.env.process(self.wait(math.ceil(min(ends) - NOISE), self.changes))

    def wait(self, until: int, changes: int) -> Steps:
        yield self.env.timeout(max(0, until - self.env.now))
        if changes == self.changes:
            self.changed()


class Device:
    """SMs, copy engines and links, and the decision which activity starts."""

    def __init__(self, env: simpy.Environment, trace: Trace, machine: Machine, needs: Needs, share: frozenset[str]) -> None:
        self.env, self.trace, self.machine, self.needs, self.share = env, trace, machine, needs, share
        self.ready: list[Activity] = []
        self.running: list[Activity] = []
        self.started = 0
        self.deciding = False
        self.ways = ways(machine, "memory" in share)
        rates = {link.name: link.rate for link in (*machine.tiers[0].way_in, *machine.tiers[0].way_out)}
        rates |= {"nvme_read": machine.nvme_read, "nvme_write": machine.nvme_write, "memory": needs.bandwidth}
        rates |= {"peer": max(machine.peer, machine.collective)} if machine.peer else {}
        self.fluid = Fluid(env, {name: Fraction(rate) for name, rate in rates.items()})

    def decide_later(self) -> None:
        """Decide at this time, after everything else that happens at it."""
        if not self.deciding:
            self.deciding = True
            event = simpy.Event(self.env)
            event._ok, event._value = True, None
            event.callbacks.append(self.decide)
            self.env.schedule(event, priority=LATE)

    def decide(self, _: simpy.Event) -> None:
        """Start what may start, one after the other: each changes what the others find."""
        self.deciding = False
        while first := next(filter(self.may_start, sorted(self.ready, key=lambda a: (a.priority, a.op))), None):
            self.ready.remove(first)
            first.start, first.begun = self.env.now, self.started
            self.started += 1
            self.running.append(first)
            first.admitted.succeed()
        self.grant()
        self.fluid.changed()

    def may_start(self, activity: Activity) -> bool:
        if activity.kind in COPIES:
            return self.has_slot(activity)
        if "sms" not in self.share or not self.width(activity):
            return True
        got = self.grants(self.running, activity)[activity]
        return got >= (self.width(activity) if activity.kind == tr.COLLECTIVE else 1)

    def has_slot(self, copy: Activity) -> bool:
        """A copy engine serves what came first."""
        if "engines" not in self.share:
            return True
        near = self.machine.tiers[0]
        slots = near.slots_in if copy.kind == tr.COPY_IN else near.slots_out
        taken = sum(a.kind == copy.kind for a in self.running)
        first = min((a for a in self.ready if a.kind == copy.kind), key=lambda a: (a.came, a.op))
        return taken < slots and copy is first

    def width(self, activity: Activity) -> int:
        """The SMs that an activity can use."""
        return self.needs.width[activity.op] if activity.kind in (tr.KERNEL, tr.COLLECTIVE) else 0

    def grants(self, running: list[Activity], candidate: Activity | None = None) -> dict[Activity, int]:
        """The SMs of each: first those that hold theirs, then by priority and start."""
        def place(a: Activity) -> tuple[bool, int, float]:
            return (not a.held, 0, a.begun) if a.held else (True, a.priority, math.inf if a is candidate else a.begun)

        left, found = self.needs.sms, {}
        for activity in sorted([*running, *([candidate] if candidate else [])], key=place):
            found[activity] = min(self.width(activity), left)
            left -= found[activity]
        return found

    def grant(self) -> None:
        """Divide the SMs anew; kernels go on as fast as theirs allow."""
        self.fluid.advance()
        for activity, sms in self.grants(self.running).items():
            width = self.width(activity)
            if "sms" in self.share and width:
                whole = activity.kind == tr.COLLECTIVE or bool(self.needs.whole[activity.op])
                activity.held = activity.held or (whole and sms == width)
                if activity.work is not None and activity.kind == tr.KERNEL:
                    activity.work.cap = Fraction(sms, width)
                activity.granted = sms

    def run(self, activity: Activity, duration: int) -> Steps:
        """An activity from its start to its end."""
        size = int(self.trace.read_bytes[activity.op])
        if activity.kind == tr.KERNEL:
            traffic = Fraction(self.needs.traffic[activity.op]) if "memory" in self.share else Fraction(0)
            limit = Fraction(activity.granted, self.width(activity)) if "sms" in self.share else Fraction(1)
            yield from self.flow(activity, Fraction(duration), limit, ("memory",), traffic)
        elif activity.kind in tr.MOVES and size and self.trace.duration[activity.op] < 0:
            route, rate, latency, curve = self.ways[activity.kind]
            if curve:  # what a copy takes alone, its start included, where that is longer; below the curve as its least
                rate = size / max(size / rate, max(size, curve[0][0]) / on_curve(curve, size) - latency)
            yield self.env.timeout(latency)
            yield from self.flow(activity, Fraction(size), Fraction(rate), route, Fraction(1))
        else:
            yield self.env.timeout(duration)

    def flow(self, activity: Activity, left: Fraction, cap: Fraction, route: tuple[str, ...], weight: Fraction) -> Steps:
        self.fluid.advance()
        activity.work = Flow(left, cap, route, weight, self.env.event())
        self.fluid.flows.append(activity.work)
        self.decide_later()
        yield activity.work.ended


def ways(m: Machine, memory: bool) -> dict[int, tuple[tuple[str, ...], float, int, Any]]:
    """Of what moves bytes: the links that it passes, its own rate (bytes/ns), its latency (ns), its curve."""
    near, through = m.tiers[0], ("memory",) if memory else ()
    h2d, d2h = tuple(x.name for x in near.way_in), tuple(x.name for x in near.way_out)
    around = ("peer",) if m.peer else (*h2d, *d2h)
    return {
        tr.COPY_IN: (h2d + through, m.h2d, m.latency, m.curve),
        tr.COPY_OUT: (d2h + through, m.d2h, m.latency, m.curve_out),
        tr.COLLECTIVE: (around + 2 * through, m.collective, m.collective_latency, m.curve_collective),
        tr.COPY_PEER: (around + through, m.peer or min(m.h2d, m.d2h, m.both / 2), m.peer_latency, ()),
        tr.NVME_READ: (("nvme_read", *through), m.nvme_read, m.nvme_latency, ()),
        tr.NVME_WRITE: (("nvme_write", *through), m.nvme_write, m.nvme_latency, ()),
    }


@dataclass(eq=False)
class Stream:
    """First in, first out: an activity starts when the one before it has ended."""

    queue: simpy.Store
    submitted: list[Activity] = field(default_factory=list)
    awaited: list[Activity] = field(default_factory=list)  # what the next activity waits for beside these

    @property
    def tail(self) -> list[Activity]:
        return [*self.submitted[-1:], *self.awaited]


class Model:
    """A program, its host and its streams."""

    def __init__(
        self, trace: Trace, machine: Machine, duration: list[int], needs: Needs, share: frozenset[str] = SHARES
    ) -> None:
        self.trace, self.machine, self.duration = trace, machine, duration
        self.env = simpy.Environment()
        self.device = Device(self.env, trace, machine, needs, share)
        self.priority = {int(s): int(p) for s, p in trace.meta.get("stream_priority", {}).items()}
        self.streams = [Stream(simpy.Store(self.env)) for _ in range(int(trace.stream.max(initial=0)) + 1)]
        self.activities: list[Activity] = []
        self.marks: dict[int, list[Activity]] = {}
        self.writer: dict[int, Activity] = {}
        self.readers: dict[int, list[Activity]] = {}
        self.host_end = 0
        for stream in self.streams:
            self.env.process(self.serve(stream))
        self.env.process(self.host())

    def host(self) -> Steps:
        """The events of the trace, one after the other."""
        t, m = self.trace, self.machine
        for kind, arg, number, time in zip(t.kind.tolist(), t.arg.tolist(), t.stream.tolist(), t.time.tolist(), strict=True):
            stream = self.streams[number]
            yield self.env.timeout(max(0, time - self.env.now))
            if kind == tr.ALLOC and t.size[arg]:
                yield self.env.timeout(m.cached)
            elif kind == tr.RECORD:
                self.marks[arg] = stream.tail
            elif kind == tr.WAIT:
                stream.awaited += self.marks.get(arg, [])
            elif kind == tr.SYNC:
                yield from self.synchronise()
            elif kind == tr.OP:
                if len(stream.submitted) >= m.queue:
                    yield stream.submitted[-m.queue].done
                yield self.env.timeout(m.operator)
                self.submit(arg, number)
        self.host_end = self.env.now

    def synchronise(self) -> Steps:
        """Wait until all is done; right after a copy the host learns it later than after a kernel."""
        open_ = [a for a in self.activities if not a.done.triggered]
        yield simpy.AllOf(self.env, [a.done for a in open_])
        if open_ and self.activities[-1].kind in COPIES:
            yield self.env.timeout(self.machine.wait)

    def submit(self, op: int, number: int) -> None:
        """An operator follows what its stream waits for, the writers of what it touches, the readers of what it writes."""
        t, stream = self.trace, self.streams[number]
        reads = t.read_id[t.read_start[op] : t.read_start[op + 1]].tolist()
        writes = t.write_id[t.write_start[op] : t.write_start[op + 1]].tolist()
        after = [*stream.awaited, *(self.writer[x] for x in reads + writes if x in self.writer)]
        after += [a for x in writes for a in self.readers.get(x, [])]
        activity = Activity(
            op, int(t.activity[op]), number, self.priority.get(number, 0), after, self.env.event(), self.env.event()
        )
        stream.awaited = []
        for tensor in writes:
            self.writer[tensor], self.readers[tensor] = activity, []
        for tensor in reads:
            self.readers.setdefault(tensor, []).append(activity)
        self.activities.append(activity)
        stream.submitted.append(activity)
        stream.queue.put(activity)

    def serve(self, stream: Stream) -> Steps:
        """The activities of a stream, one after the other; kernels and collectives leave a gap before them."""
        before = None
        while True:
            activity = yield stream.queue.get()
            yield simpy.AllOf(self.env, [a.done for a in activity.after])
            if before is not None and activity.kind in (tr.KERNEL, tr.COLLECTIVE):
                yield self.env.timeout(max(0, before.end + self.machine.gap - self.env.now))
            activity.came = self.env.now
            self.device.ready.append(activity)
            self.device.decide_later()
            yield activity.admitted
            yield from self.device.run(activity, self.duration[activity.op])
            activity.end, before = self.env.now, activity
            self.device.running.remove(activity)
            self.device.decide_later()
            activity.done.succeed()

    def play(self) -> tuple[int, list[tuple[int, int]]]:
        """(makespan, (start, end) of each operator), ns."""
        self.env.run()
        spans = [(a.start, a.end) for a in self.activities]
        return max([self.host_end, *(end for _, end in spans)]), spans
