"""GPUs that engines of several services have together: whose step runs, and how fast.

A step fills its GPUs.  In time slices one engine's step runs at a time, in the turns of the driver's runlist; under MPS all
steps that are under way run at once, each at an equal part of its speed.  See `machine.tenancy` for the rules; what an engine's
CPU does for a step counts as a part of it.
"""

from __future__ import annotations

import math

from gpusim.base.compiled import kernel, outlined
from gpusim.engine.serving.tables import BY_TURNS, Service
from gpusim.policies.schedule.parts.tables import NEVER


@kernel
def next_change(s: Service) -> int:
    """When a turn or a switch is over next, ns; NEVER: none is."""
    time = NEVER
    for d in range(s.device.size):
        if s.device[d].changed == 0:
            time = min(time, s.device[d].next)
    return time


@kernel
def is_over(s: Service, now: int) -> bool:
    """A turn or a switch is over now, which has to be looked at when all else of this moment has happened."""
    for d in range(s.device.size):
        if s.device[d].changed == 0 and s.device[d].next == now:
            s.device[d].changed = 1
            return True
    return False


@kernel
def changed(s: Service) -> int:
    """A device on which something has changed; -1: there is none."""
    for d in range(s.device.size):
        if s.device[d].changed:
            return d
    return -1


@kernel
def add(s: Service, e: int, ns: int) -> None:
    """Engine e has a step, of so many ns on the device alone."""
    engine = s.engine[e]
    engine.left, engine.part, engine.since, engine.fresh = float(ns), 0.0, s.clock[0].now, 1
    s.device[engine.device].changed = 1


@kernel
def hand(s: Service, e: int, part: float) -> None:
    """Engine e has this part of the device from now on."""
    engine, now = s.engine[e], s.clock[0].now
    if engine.part != part:
        engine.left -= (now - engine.since) * engine.part
        engine.part, engine.since = part, now
        engine.ends = NEVER
        if part > 0.0:
            engine.ends = now + max(0, math.ceil(engine.left / part - 1e-6))


@outlined
def arbitrate(s: Service, d: int) -> None:
    """The device passes to the engines that are due now."""
    device, count = s.device[d], 0
    device.changed = 0
    if device.mode == BY_TURNS:
        take_turns(s, d)
        return
    for e in range(s.engine.size):
        count += s.engine[e].device == d and s.engine[e].working != 0
    for e in range(s.engine.size):
        if s.engine[e].device == d and s.engine[e].working != 0:
            hand(s, e, 1.0 / count)


@kernel
def next_turn(s: Service, d: int) -> int:
    """The next place in the runlist whose engine has a step, the present one at last; -1: none has."""
    turns = s.turns.shape[1]
    for step in range(1, turns + 1):
        at = (s.device[d].turn + step) % turns
        if s.engine[s.turns[d, at]].working != 0:
            return at
    return -1


@kernel
def take_turns(s: Service, d: int) -> None:
    """One engine has the device, or none while it passes to the next."""
    device, now = s.device[d], s.clock[0].now
    if device.switching:
        if now >= device.next:
            device.switching = 0
            begin_turn(s, d)
        return
    e = s.turns[d, device.turn] if device.turn >= 0 else -1
    if e >= 0 and s.engine[e].working != 0 and now < device.next < NEVER:
        if s.engine[e].part == 0.0:  # its next step, in the same turn
            resume(s, e)
        return
    turn = next_turn(s, d)
    if turn < 0:
        device.next = NEVER  # it stays where it is
        return
    to = s.turns[d, turn]
    device.turn = turn
    if e < 0 or to == e:
        begin_turn(s, d)
        return
    moves = s.engine[e].working + (1 - s.engine[to].fresh)
    cost = round(device.fixed + device.state * moves)
    if s.engine[e].working != 0:
        hand(s, e, 0.0)
    device.switches += 1
    device.switched += cost
    if cost > 0:
        device.switching, device.next = 1, now + cost
    else:
        begin_turn(s, d)


@kernel
def begin_turn(s: Service, d: int) -> None:
    device = s.device[d]
    e = s.turns[d, device.turn]
    device.next = s.clock[0].now + s.engine[e].slice
    resume(s, e)


@kernel
def resume(s: Service, e: int) -> None:
    hand(s, e, 1.0)
    s.engine[e].fresh = 0
