"""One program on one device, as plainly as it can be said: a SimPy process for the host, one for each queue of activities.

It shares nothing with gpusim's engine but the numbers of the machine, and is the definition that the engine's times are
compared with.  What is where is no matter of time: which tensors leave or come at which event, and where they lie, is given
(`Moves`).

Time is whole ns.  What has to be decided at a time is decided when all that happens at it has happened (`Device.decide`):
first come the ends of activities, what they let the host submit, and what is then ready.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, NamedTuple

import simpy
from plain_fluid import Flow, Fluid, Steps

from gpusim.machine.constants import Machine
from gpusim.machine.streaming import at as on_curve
from gpusim.machine.transfer_times import host_bytes
from gpusim.trace import trace as tr
from gpusim.trace.trace import Trace

LATE = 2  # SimPy's priority of what comes after all else at a time; its own are 0 and 1
SHARES = frozenset({"sms", "memory", "engines"})
SWAP_IN, SWAP_OUT = -1, -2  # kinds of activities beside those of the trace, and their queues
SWAPS = (SWAP_IN, SWAP_OUT)
TIMED = (tr.COPY_IN, tr.COPY_OUT, tr.COPY_PEER, tr.NVME_READ, tr.NVME_WRITE)
DIRECTION = {tr.COPY_IN: "in", SWAP_IN: "in", tr.COPY_OUT: "out", SWAP_OUT: "out"}
PLACE, UNPLACE = range(2)


class Moves(NamedTuple):
    """What happens to one tensor on the device: a block is taken (PLACE), given back, or a swap begins (SWAP_IN, SWAP_OUT)."""

    what: int
    tensor: int
    address: int
    size: int  # of the block; of a swap the bytes that it moves


@dataclass(frozen=True)
class Needs:
    """What the kernels of a program want of the device."""

    width: list[int]      # of each operator the SMs that it can use
    whole: list[int]      # whether its grid is resident at once
    traffic: list[float]  # bytes/ns of memory when it runs at full speed
    sms: int              # that the program may have
    bandwidth: float      # bytes/ns


@dataclass(eq=False)
class Activity:
    """An operator or a swap that the host has submitted."""

    number: int  # in the order of submission
    kind: int
    op: int  # -1: a swap
    size: int  # bytes
    duration: int  # ns, where no bytes flow
    flows: bool
    priority: int
    after: list[Activity]
    done: simpy.Event
    admitted: simpy.Event
    came: int = -1  # when it was first in its queue and all that it waits for was done
    start: int = -1
    end: int = -1
    begun: int = -1  # its place in the order of starts
    granted: int = 0
    held: bool = False
    work: Flow | None = None


class Device:
    """SMs, copy engines and links, and the decision which activity starts."""

    def __init__(
        self, env: simpy.Environment, machine: Machine, needs: Needs, share: frozenset[str], works: bool
    ) -> None:
        self.env, self.machine, self.needs, self.share = env, machine, needs, share
        self.ready: list[Activity] = []
        self.running: list[Activity] = []
        self.started = 0
        self.deciding = False
        self.ways = ways(machine, "memory" in share, works)
        rates = {link.name: link.rate for link in (*machine.tiers[0].way_in, *machine.tiers[0].way_out)}
        rates |= {"nvme_read": machine.nvme_read, "nvme_write": machine.nvme_write, "memory": needs.bandwidth}
        rates |= {"host_memory": machine.host}
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
        while first := next(filter(self.may_start, sorted(self.ready, key=lambda a: (a.priority, a.number))), None):
            self.ready.remove(first)
            first.start, first.begun = self.env.now, self.started
            self.started += 1
            self.running.append(first)
            first.admitted.succeed()
        self.grant()
        self.fluid.changed()

    def may_start(self, activity: Activity) -> bool:
        """Whether there is a slot of a copy engine for it, or an SM; a collective wants all of its SMs."""
        if self.takes_turns(activity):
            return self.has_slot(activity)
        if "sms" not in self.share or not self.width(activity):
            return True
        got = self.grants(activity)[activity]
        return got >= (self.width(activity) if activity.kind == tr.COLLECTIVE else 1)

    def takes_turns(self, activity: Activity) -> bool:
        """Swaps take turns, the program's copies with them where engines are shared."""
        return activity.kind in SWAPS or ("engines" in self.share and activity.kind in DIRECTION)

    def has_slot(self, copy: Activity) -> bool:
        """A copy engine serves what came first."""
        near, way = self.machine.tiers[0], DIRECTION[copy.kind]
        taken, waiting = (
            [a for a in of if self.takes_turns(a) and DIRECTION[a.kind] == way] for of in (self.running, self.ready)
        )
        first = min(waiting, key=lambda a: (a.came, a.number))
        return len(taken) < (near.slots_in if way == "in" else near.slots_out) and copy is first

    def width(self, activity: Activity) -> int:
        """The SMs that an activity can use."""
        return self.needs.width[activity.op] if activity.kind in (tr.KERNEL, tr.COLLECTIVE) else 0

    def grants(self, candidate: Activity | None = None) -> dict[Activity, int]:
        """The SMs of each that runs, and of a candidate: first those that hold theirs, then by priority and start."""

        def place(a: Activity) -> tuple[bool, int, float]:
            return (False, 0, a.begun) if a.held else (True, a.priority, math.inf if a is candidate else a.begun)

        left, found = self.needs.sms, {}
        for activity in sorted([*self.running, *([candidate] if candidate else [])], key=place):
            found[activity] = min(self.width(activity), left)
            left -= found[activity]
        return found

    def grant(self) -> None:
        """Divide the SMs anew; kernels go on as fast as theirs allow."""
        self.fluid.advance()
        for activity, sms in self.grants().items():
            width = self.width(activity)
            if "sms" in self.share and width:
                whole = activity.kind == tr.COLLECTIVE or bool(self.needs.whole[activity.op])
                activity.held = activity.held or (whole and sms == width)
                if activity.work is not None and activity.kind == tr.KERNEL:
                    activity.work.cap = Fraction(sms, width)
                activity.granted = sms

    def run(self, activity: Activity) -> Steps:
        """An activity from its start to its end."""
        if activity.kind == tr.KERNEL:
            traffic = Fraction(self.needs.traffic[activity.op]) if "memory" in self.share else Fraction(0)
            limit = Fraction(activity.granted, self.width(activity)) if "sms" in self.share else Fraction(1)
            yield from self.flow(activity, Fraction(activity.duration), limit, ("memory",), traffic)
        elif activity.flows and activity.duration:  # its bytes take their time, where the memory has the bandwidth for them
            shared: tuple[str, ...] = ("memory",) if "memory" in self.share else ()
            route = ("host_memory",) if activity.kind == tr.HOST_WORK else shared
            need = Fraction(activity.size, activity.duration)
            yield from self.flow(activity, Fraction(activity.duration), Fraction(1), route, need)
        elif activity.flows:
            route, rate, latency, curve = self.ways[activity.kind]
            size = activity.size
            if curve:  # what a copy takes alone, its start included, where that is longer; below the curve as its least
                rate = size / max(size / rate, max(size, curve[0][0]) / on_curve(curve, size) - latency)
            yield self.env.timeout(latency)
            yield from self.flow(activity, Fraction(size), Fraction(rate), route, Fraction(1))
        else:
            yield self.env.timeout(activity.duration)

    def flow(self, activity: Activity, left: Fraction, cap: Fraction, route: tuple[str, ...], weight: Fraction) -> Steps:
        """The part of an activity that shares links with others."""
        self.fluid.advance()
        activity.work = Flow(left, cap, route, weight, self.env.event())
        self.fluid.flows.append(activity.work)
        self.decide_later()
        yield activity.work.ended


def ways(m: Machine, memory: bool, works: bool) -> dict[int, tuple[tuple[str, ...], float, int, Any]]:
    """Of what moves bytes: the links that it passes, its own rate (bytes/ns), its latency (ns), its curve.

    memory, works   whether the device's memory is shared, whether the CPU works for the program beside copies
    """
    near, through = m.tiers[0], ("memory",) if memory else ()
    h2d, d2h = tuple(x.name for x in near.way_in), tuple(x.name for x in near.way_out)
    around = ("peer",) if m.peer else (*h2d, *d2h)
    h2d, d2h = (way + (("host_memory",) if works else ()) for way in (h2d, d2h))
    return {
        SWAP_IN: (h2d + through, near.read, near.read_latency, near.curve),
        SWAP_OUT: (d2h + through, near.write, near.write_latency, near.curve_out),
        tr.COPY_IN: (h2d + through, m.h2d, m.latency, m.curve),
        tr.COPY_OUT: (d2h + through, m.d2h, m.latency, m.curve_out),
        tr.COLLECTIVE: (around + 2 * through, m.collective, m.collective_latency, m.curve_collective),
        tr.COPY_PEER: (around + through, m.peer or min(m.h2d, m.d2h, m.both / 2), m.peer_latency, ()),
        tr.NVME_READ: (("nvme_read", *through), m.nvme_read, m.nvme_latency, ()),
        tr.NVME_WRITE: (("nvme_write", *through), m.nvme_write, m.nvme_latency, ()),
    }


@dataclass(eq=False)
class Queue:
    """A stream or a queue of swaps: first in, first out."""

    waiting: simpy.Store
    submitted: list[Activity] = field(default_factory=list)
    awaited: list[Activity] = field(default_factory=list)  # what the next activity waits for beside these


class Contents:
    """Who used the blocks and the data of tensors: what has to be done before the next may."""

    def __init__(self) -> None:
        self.block: dict[int, tuple[int, int]] = {}  # tensor -> its addresses
        self.former: dict[int, list[Activity]] = {}  # tensor -> who used these addresses before
        self.users: list[tuple[int, int, Activity]] = []  # addresses, who used them
        self.writer: dict[int, Activity] = {}
        self.readers: dict[int, list[Activity]] = {}
        self.copied: dict[int, Activity] = {}  # tensor -> the swap that has brought it below

    def place(self, tensor: int, start: int, end: int) -> None:
        """A block of the device holds the tensor from here on."""
        self.block[tensor] = start, end
        self.former[tensor] = [a for first, last, a in self.users if first < end and last > start]

    def before(self, reads: list[int], writes: list[int]) -> list[Activity]:
        """Whom an activity waits for that reads and writes these tensors on the device."""
        touched = [*reads, *writes]
        found = [self.writer[x] for x in touched if x in self.writer] + [a for x in writes for a in self.readers.get(x, [])]
        return found + [a for x in touched for a in self.former.get(x, [])]

    def used(self, activity: Activity, reads: list[int], writes: list[int]) -> None:
        """An activity was submitted that does."""
        for tensor in writes:
            self.writer[tensor], self.readers[tensor] = activity, []
        for tensor in reads:
            self.readers.setdefault(tensor, []).append(activity)
        self.users += [(*self.block[x], activity) for x in {*reads, *writes} if x in self.block]


class Model:
    """A program, its host, its streams and its queues of swaps.

    moves   of each event of the trace what happens to tensors at it
    """

    def __init__(
        self, trace: Trace, machine: Machine, duration: list[int], needs: Needs, share: frozenset[str], moves: list[list[Moves]]
    ) -> None:
        self.trace, self.machine, self.duration, self.moves = trace, machine, duration, moves
        self.env = simpy.Environment()
        self.host_bytes = host_bytes(trace)
        self.device = Device(self.env, machine, needs, share, bool(self.host_bytes.any()))
        self.priority = {int(s): int(p) for s, p in trace.meta.get("stream_priority", {}).items()}
        numbers = [*SWAPS, *range(int(trace.stream.max(initial=0)) + 1)]
        self.queues = {number: Queue(simpy.Store(self.env)) for number in numbers}
        self.activities: list[Activity] = []
        self.marks: dict[int, list[Activity]] = {}
        self.contents = Contents()
        self.host_end = 0
        for queue in self.queues.values():
            self.env.process(self.serve(queue))
        self.env.process(self.host())

    def host(self) -> Steps:
        """The events of the trace, one after the other; a launch is paid before it is made, what its tensors cost behind it."""
        t, m = self.trace, self.machine
        columns = (t.kind.tolist(), t.arg.tolist(), t.stream.tolist(), t.time.tolist(), self.moves)
        for kind, arg, number, time, moves in zip(*columns, strict=True):
            queue = self.queues[number]
            yield self.env.timeout(max(0, time - self.env.now))
            if kind == tr.RECORD:
                self.marks[arg] = [*queue.submitted[-1:], *queue.awaited]
            elif kind == tr.WAIT:
                queue.awaited += self.marks.get(arg, [])
            elif kind == tr.SYNC:
                yield from self.synchronise()
            elif kind == tr.OP:
                if len(queue.submitted) >= m.queue:
                    yield queue.submitted[-m.queue].done
                yield self.env.timeout(m.operator)
            cost = sum([self.move(move) for move in moves]) + (m.cached if kind == tr.ALLOC and t.size[arg] else 0)
            if kind == tr.OP:
                self.operate(arg, number)
            yield self.env.timeout(cost)
        self.host_end = self.env.now

    def synchronise(self) -> Steps:
        """Wait until all is done; right after a copy the host learns it later than after a kernel."""
        open_ = [a for a in self.activities if not a.done.triggered]
        operators = [a for a in self.activities if a.op >= 0]
        awaited = any(a.op >= 0 for a in open_) and operators[-1].kind in DIRECTION
        yield simpy.AllOf(self.env, [a.done for a in open_])
        if awaited:
            yield self.env.timeout(self.machine.wait)

    def move(self, move: Moves) -> int:
        """Carry it out; what it costs the host, ns."""
        contents, tensor = self.contents, move.tensor
        if move.what == PLACE:
            contents.place(tensor, move.address, move.address + move.size)
        elif move.what == SWAP_IN:
            after = contents.former[tensor] + ([contents.copied[tensor]] if tensor in contents.copied else [])
            contents.used(self.submit(SWAP_IN, -1, move.size, SWAP_IN, after), [], [tensor])
        elif move.what == SWAP_OUT:
            after = contents.before([tensor], []) + contents.readers.get(tensor, [])
            contents.copied[tensor] = self.submit(SWAP_OUT, -1, move.size, SWAP_OUT, after)
            contents.used(contents.copied[tensor], [tensor], [])
        elif tensor in contents.block:
            del contents.block[tensor], contents.former[tensor]
        return self.machine.submit if move.what in SWAPS else 0

    def operate(self, op: int, number: int) -> None:
        """An operator follows what its stream waits for, and whoever used its tensors or their blocks."""
        t, queue = self.trace, self.queues[number]
        reads = t.read_id[t.read_start[op] : t.read_start[op + 1]].tolist()
        writes = t.write_id[t.write_start[op] : t.write_start[op + 1]].tolist()
        after, queue.awaited = [*queue.awaited, *self.contents.before(reads, writes)], []
        self.contents.used(self.submit(int(t.activity[op]), op, int(t.read_bytes[op]), number, after), reads, writes)

    def submit(self, kind: int, op: int, size: int, number: int, after: list[Activity]) -> Activity:
        """Hand an activity to its queue."""
        swap, priority = kind in SWAPS, self.priority.get(number, 0)
        size = int(self.host_bytes[op]) if kind == tr.HOST_WORK else size
        recorded = not swap and self.trace.duration[op] >= 0
        timed = recorded and kind in TIMED and self.trace.device_time[op] >= 0  # it is known what ran beside it
        flows = swap or (kind in (*tr.MOVES, tr.HOST_WORK) and size > 0 and (timed or not recorded))
        done, admitted = self.env.event(), self.env.event()
        duration = self.duration[op] if recorded or kind in (tr.KERNEL, tr.HOST_WORK) or not flows else 0
        activity = Activity(len(self.activities), kind, op, size, duration, flows, priority, after, done, admitted)
        self.activities.append(activity)
        self.queues[number].submitted.append(activity)
        self.queues[number].waiting.put(activity)
        return activity

    def serve(self, queue: Queue) -> Steps:
        """The activities of a queue: of a stream each behind the other, kernels and collectives after a gap; swaps by slots."""
        before: Activity | None = None
        while True:
            activity = yield queue.waiting.get()
            yield simpy.AllOf(self.env, [a.done for a in activity.after])
            if before is not None and activity.kind in (tr.KERNEL, tr.COLLECTIVE):
                yield self.env.timeout(max(0, before.end + self.machine.gap - self.env.now))
            activity.came = self.env.now
            self.device.ready.append(activity)
            self.device.decide_later()
            yield activity.admitted
            running = self.env.process(self.carry_out(activity, before))
            if activity.kind not in SWAPS:
                yield running
            before = activity

    def carry_out(self, activity: Activity, before: Activity | None) -> Steps:
        """From the start to the end; a queue counts as done in order."""
        yield from self.device.run(activity)
        activity.end = self.env.now
        self.device.running.remove(activity)
        self.device.decide_later()
        if before is not None:
            yield before.done
        activity.done.succeed()

    def play(self) -> tuple[int, list[tuple[int, int]]]:
        """(makespan, (start, end) of each activity in the order of submission), ns."""
        self.env.run()
        spans = [(a.start, a.end) for a in self.activities]
        return max([self.host_end, *(end for _, end in spans)]), spans
