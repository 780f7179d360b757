"""About how long a program takes under a plan: one stream of kernels, two copy engines, memory without addresses.

What searches over plans ask thousands of times; the engine itself is asked only about the best.  What is assumed:

- kernels run in the order of the program, one after the other: streams, and waits between them, are left out;
- the host costs nothing and runs ahead of the device as far as it likes;
- copies in one direction go one after the other at the nearest tier's rate, those of both directions side by side; that tier
  is never full;
- any bytes make a block: nothing is rounded, nothing is fragmented.  Whatever takes bytes waits until they are empty, those
  that were given back first;
- what is absent is brought in on demand; where room is lacking, the least recently used leaves.

Where a run keeps to that, the estimate is the engine's time; where several holes are open at once and the engine takes
another one, it is off by a percent or so.  Of recorded programs it is short, by 15 to 60 % of those measured (80 % of one
plan), because of what the host and the allocator cost: it ranks the plans of one program (tests/policies/
test_plan_estimate.py).
"""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import numpy as np

from gpusim.base.compiled import kept, kernel
from gpusim.base.tables import f8, filled, i8, record, table
from gpusim.policies.contract import ACTION
from gpusim.policies.planning import EVICT, Schedule, View
from gpusim.trace.trace import ALLOC, FREE, OP

ABSENT, HERE, BELOW = range(3)
GIVEN = record([("bytes", i8), ("since", f8)])  # bytes that were given back, and from when on they are empty
STATE = record(
    [("event", i8), ("action", i8), ("free", i8), ("here", i8),  # the next action; free bytes; tensors that are here
     ("head", i8), ("tail", i8),  # of `given`: the first that is not used up, the end
     ("kernels", f8), ("out", f8), ("into", f8),  # when the latest kernel, copy from and copy to the device end
     ("write_ns", f8), ("write_latency", f8), ("read_ns", f8), ("read_latency", f8)]  # of a byte, of a copy
)  # fmt: skip


class Sketched(NamedTuple):
    """What is sketched: the program, the plan, and the records that only Python can make."""

    kind: Annotated[Any, np.uint8, "E"]
    arg: Annotated[Any, i8, "E"]
    acc_start: Annotated[Any, i8, "O + 1"]
    acc_unit: Annotated[Any, i8, "A"]
    acc_write: Annotated[Any, np.uint8, "A"]
    duration: Annotated[Any, i8, "O"]
    size: Annotated[Any, i8, "T"]
    has_data: Annotated[Any, np.uint8, "T"]  # from the start
    actions: Annotated[Any, ACTION, "actions"]
    state: Annotated[Any, STATE, 1]
    given: Annotated[Any, GIVEN, "given"]  # in the order in which they were given back


class Sketch(NamedTuple):
    """A rough run: what is sketched, then the state of the tensors, (T,) each."""

    kind: Any
    arg: Any
    acc_start: Any
    acc_unit: Any
    acc_write: Any
    duration: Any
    size: Any
    actions: Any
    state: Any
    given: Any
    where: Any
    data: Any    # it holds something
    copied: Any  # the copy below is valid
    lock: Any    # the latest event that uses it, from its beginning on
    last: Any    # the latest event that used it or brought it in
    ready: Any   # when its bytes and its data are there, ns
    used: Any    # when its latest kernel ends
    saved: Any   # when the copy below is complete
    slot: Any    # its position in `here`
    here: Any    # the tensors on the device, in no order


def estimate(view: View, plan: Schedule, room: int | None = None) -> float:
    """ns until the last kernel ends; infinite where some operator does not fit into `room` bytes (None: all there are)."""
    w = view.work
    if not view.tiers:
        return float(w.clock[-1] + w.duration[-1]) if len(w.duration) else 0.0
    return float(_run(_sketched(view, plan, view.capacity if room is None else room)))


def _sketched(view: View, plan: Schedule, room: int) -> Sketched:
    w, t, tier = view.work, view.work.trace, view.tiers[0]
    state, given = table(1, STATE), table(len(t.kind) + len(w.acc_unit) + len(plan.actions) + 1, GIVEN)
    state["read_ns"], state["read_latency"] = 1 / tier.read, tier.read_latency
    state["write_ns"], state["write_latency"] = 1 / tier.write, tier.write_latency
    state["free"] = given["bytes"][0] = room
    state["tail"] = 1
    return filled(
        Sketched, {}, kind=t.kind, arg=t.arg, acc_start=w.acc_start, acc_unit=w.acc_unit, acc_write=w.acc_write,
        duration=w.duration, size=t.size, has_data=w.has_data, actions=np.ascontiguousarray(plan.actions),
        state=state, given=given,
    )  # fmt: skip


@kept()
def _run(of: Any) -> float:
    n = of.size.size
    run = Sketch(
        kind=of.kind, arg=of.arg, acc_start=of.acc_start, acc_unit=of.acc_unit, acc_write=of.acc_write, duration=of.duration,
        size=of.size, actions=of.actions, state=of.state, given=of.given,
        where=np.zeros(n, np.int64), data=of.has_data.copy(), copied=np.zeros(n, np.uint8), lock=np.full(n, -1, np.int64),
        last=np.zeros(n, np.int64), ready=np.zeros(n), used=np.zeros(n), saved=np.zeros(n), slot=np.empty(n, np.int64),
        here=np.empty(n, np.int64),
    )  # fmt: skip
    s = run.state[0]
    for e in range(run.kind.size):
        s.event = e
        kind, arg = run.kind[e], run.arg[e]
        fits = True
        if kind == ALLOC:
            fits = _bring(run, arg)
        elif kind == FREE:
            _end(run, arg)
        elif kind == OP:
            for i in range(run.acc_start[arg], run.acc_start[arg + 1]):
                run.lock[run.acc_unit[i]] = e
            fits = _act(run, arg) and _demand(run, arg)
            _compute(run, arg)
        if not fits:
            return np.inf
    return s.kernels


@kernel
def _act(run: Any, op: int) -> bool:
    """What the plan wants before the operator, as far as it can be done."""
    s = run.state[0]
    while s.action < run.actions.size and run.actions[s.action].at == op:
        u = run.actions[s.action].unit
        if run.actions[s.action].verb == EVICT:
            if run.where[u] == HERE and run.lock[u] != s.event:
                _leave(run, u)
        elif run.where[u] == BELOW and s.free >= run.size[u] and not _bring(run, u):
            return False
        s.action += 1
    return True


@kernel
def _demand(run: Any, op: int) -> bool:
    """Bring in what the operator uses; False where that does not fit."""
    for i in range(run.acc_start[op], run.acc_start[op + 1]):
        u = run.acc_unit[i]
        if run.where[u] == BELOW and not _bring(run, u):
            return False
    return True


@kernel
def _compute(run: Any, op: int) -> None:
    """The operator's kernel begins when the one before has ended and all that it uses is there."""
    s = run.state[0]
    start = s.kernels
    for i in range(run.acc_start[op], run.acc_start[op + 1]):
        start = max(start, run.ready[run.acc_unit[i]])
    s.kernels = end = start + run.duration[op]
    for i in range(run.acc_start[op], run.acc_start[op + 1]):
        u = run.acc_unit[i]
        run.used[u], run.last[u] = end, s.event
        if run.acc_write[i]:
            run.data[u], run.copied[u] = 1, 0


@kernel
def _bring(run: Any, u: int) -> bool:
    """Give the tensor room, which the least recently used leave where it is lacking, and its data; False without room."""
    s, size = run.state[0], run.size[u]
    while s.free < size:
        victim = _least_recent(run)
        if victim < 0:
            return False
        _leave(run, victim)
    since = _take(run, size)
    if run.where[u] == BELOW and run.data[u]:
        s.into = max(s.into, since, run.saved[u]) + s.read_latency + size * s.read_ns
        since = s.into
    run.where[u], run.ready[u], run.used[u], run.last[u] = HERE, since, 0.0, s.event
    run.here[s.here], run.slot[u] = u, s.here
    s.here += 1
    return True


@kernel
def _least_recent(run: Any) -> int:
    """The tensor here that was used least recently and is not in use, -1 where there is none."""
    here, last, lock = run.here, run.last, run.lock
    event, found = run.state[0].event, -1
    for i in range(run.state[0].here):
        u = here[i]
        if lock[u] != event and (found < 0 or last[u] < last[found]):
            found = u
    return found


@kernel
def _take(run: Any, wanted: int) -> float:
    """Take so many free bytes; returns when the last of them is empty."""
    s, since = run.state[0], 0.0
    s.free -= wanted
    while wanted > 0:
        given = run.given[s.head]
        taken = min(wanted, given.bytes)
        since = max(since, given.since)
        given.bytes -= taken
        wanted -= taken
        if given.bytes == 0:
            s.head += 1
    return since


@kernel
def _leave(run: Any, u: int) -> None:
    """The tensor's bytes are empty when its last kernel has ended, and where there is no valid copy below, it is written."""
    s = run.state[0]
    done = max(run.used[u], run.ready[u])
    if run.data[u] and not run.copied[u]:
        s.out = max(s.out, done) + s.write_latency + run.size[u] * s.write_ns
        done = run.saved[u] = s.out
        run.copied[u] = 1
    _give_back(run, u, done)
    run.where[u] = BELOW


@kernel
def _end(run: Any, u: int) -> None:
    """The program frees the tensor."""
    if run.where[u] == HERE:
        _give_back(run, u, max(run.used[u], run.ready[u]))
    run.where[u] = ABSENT


@kernel
def _give_back(run: Any, u: int, since: float) -> None:
    """The tensor is here no more; its bytes are empty from `since` on."""
    s = run.state[0]
    given = run.given[s.tail]
    given.bytes, given.since = run.size[u], since
    s.tail += 1
    s.free += run.size[u]
    s.here -= 1
    last = run.here[s.here]
    run.here[run.slot[u]] = last
    run.slot[last] = run.slot[u]
