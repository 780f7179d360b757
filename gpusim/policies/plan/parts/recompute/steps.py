"""One replay, step by step: the schedule's actions, and operators that wait for their inputs on a stack of frames."""

from __future__ import annotations

from gpusim.base.compiled import entry, kernel
from gpusim.policies.plan.parts.recompute import classes
from gpusim.policies.plan.parts.recompute import victim as choice
from gpusim.policies.plan.parts.recompute.heuristics import DTR_EQ
from gpusim.policies.plan.parts.recompute.problem import COMPUTE, GET, RELEASE
from gpusim.policies.plan.parts.recompute.state import (
    AGAIN,
    CHOSEN,
    EAGER,
    FINISHED,
    FIRST,
    FREED,
    LOG_FULL,
    OUT_OF_MEMORY,
    THRASHING,
    RecomputeTables,
)

BEGIN, INPUTS, ROOM = range(3)  # stages of a frame
DONE, WAITS, NO_ROOM, TOO_DEAR = range(4)  # what a step came to


@entry()
def advance(run: RecomputeTables) -> int:
    """Go on until the end, a failure, or a log that is full; the next call goes on there."""
    c = run.control[0]
    while True:
        if c.logged == run.log.size:
            return LOG_FULL
        if c.depth > 0:
            came = _step(run)
            if came == NO_ROOM:
                return OUT_OF_MEMORY
            if came == TOO_DEAR:
                return THRASHING
        elif c.at < run.verb.size:
            _act(run)
        else:
            return FINISHED


@kernel
def _act(run: RecomputeTables) -> None:
    """The next action of the schedule, or the first step of it."""
    c = run.control[0]
    verb, arg = run.verb[c.at], run.arg[c.at]
    if verb == COMPUTE:
        _create(run, arg)
        _push(run, arg, run.out_start[arg] if run.out_start[arg] < run.out_start[arg + 1] else -1, 1)
        return
    tensor = run.tensors[arg]
    s = tensor.storage
    storage = run.storages[s]
    if verb == GET:
        storage.external += 1
    elif verb == RELEASE:
        storage.external -= 1
        if storage.external == 0 and storage.material == 1:
            if storage.pinned == 0:
                c.eager += 1
                _evict(run, s, EAGER)
            elif c.frees_constants == 1:
                _evict(run, s, FREED)
    elif tensor.defined == 0:  # to be pinned: first it is recomputed
        _push(run, tensor.op, arg, 0)
        return
    elif storage.pinned == 0:
        storage.pinned = 1
        _lock(run, s)
    c.at += 1


@kernel
def _create(run: RecomputeTables, o: int) -> None:
    """The operator's tensors, before it is run: a new storage is as yet an evicted one."""
    c = run.control[0]
    c.created = o
    for t in range(run.out_start[o], run.out_start[o + 1]):
        s = run.tensors[t].storage
        storage = run.storages[s]
        if c.heuristic == DTR_EQ and storage.counted < 0:
            classes.found(run, s, 0)
        storage.external += 1
        if storage.counted != o:
            storage.counted = o
            storage.cost += run.cost[o]


@kernel
def _push(run: RecomputeTables, o: int, tensor: int, first: int) -> None:
    c = run.control[0]
    frame = run.frames[c.depth]
    frame.op, frame.tensor, frame.first, frame.stage = o, tensor, first, BEGIN
    c.depth += 1


@kernel
def _step(run: RecomputeTables) -> int:
    """Take the uppermost operator as far as one eviction or its run."""
    c = run.control[0]
    frame = run.frames[c.depth - 1]
    o = frame.op
    begin, end = run.in_start[o], run.in_start[o + 1]
    if frame.stage == BEGIN:
        for e in range(begin, end):
            run.storages[run.tensors[run.in_id[e]].storage].last = c.clock
        for e in range(begin, end):
            tensor = run.tensors[run.in_id[e]]
            run.locked[e] = tensor.defined
            if tensor.defined == 1:
                _lock(run, tensor.storage)
        frame.stage, frame.edge = INPUTS, begin
    if frame.stage == INPUTS:
        while frame.edge < end:
            e = frame.edge
            if run.locked[e] == 0:
                tensor = run.tensors[run.in_id[e]]
                if tensor.defined == 0:
                    _push(run, tensor.op, run.in_id[e], 0)
                    return WAITS
                _lock(run, tensor.storage)
            frame.edge += 1
        frame.stage = ROOM
    if c.memory + run.need[o] > c.budget:
        if c.pool_count > 0 and c.remat <= c.limit:
            victim = choice.choose(run)
            c.evictions += 1
            c.evicted_bytes += run.storages[victim].size
            _evict(run, victim, CHOSEN)
            return WAITS
        if c.lenient == 0:
            return NO_ROOM
        c.overdrafts += 1
    _run(run, o, frame.tensor, frame.first)
    c.depth -= 1
    c.at += frame.first
    return DONE if c.remat <= c.limit or c.lenient == 1 else TOO_DEAR


@kernel
def _run(run: RecomputeTables, o: int, wanted: int, first: int) -> None:
    """Run the operator: its tensors are there, what was there already is dropped, its inputs are let go."""
    c = run.control[0]
    c.clock += run.cost[o]
    c.memory += run.need[o]
    c.peak = max(c.peak, c.memory)
    for t in range(run.out_start[o], run.out_start[o + 1]):
        if t != wanted:
            if run.tensors[t].defined == 1:
                c.memory -= run.tensors[t].size
            else:
                _define(run, t)
    if wanted >= 0:
        _define(run, wanted)
    for e in range(run.in_start[o], run.in_start[o + 1]):
        s = run.tensors[run.in_id[e]].storage
        run.storages[s].locks -= 1
        if run.storages[s].locks == 0:
            choice.append(run, s)
    if first == 1:
        for t in range(run.out_start[o], run.out_start[o + 1]):
            run.storages[run.tensors[t].storage].last = c.clock
        c.model += run.cost[o]
        c.first_runs += 1
        _tell(run, FIRST, o)
    else:
        c.remat += run.cost[o]
        c.reruns += 1
        _tell(run, AGAIN, o)


@kernel
def _define(run: RecomputeTables, t: int) -> None:
    tensor = run.tensors[t]
    tensor.defined = 1
    storage = run.storages[tensor.storage]
    if storage.material == 0:
        storage.material = 1
        if storage.locks == 0:
            choice.append(run, tensor.storage)
        if run.control[0].heuristic == DTR_EQ:
            classes.leave(run, tensor.storage)


@kernel
def _evict(run: RecomputeTables, s: int, why: int) -> None:
    c, storage = run.control[0], run.storages[s]
    storage.material = 0
    c.memory -= storage.size
    choice.remove(run, s)
    for i in range(run.member_start[s], run.member_start[s + 1]):
        run.tensors[run.member_id[i]].defined = 0
    if c.heuristic == DTR_EQ:
        classes.found(run, s, storage.cost)
        for e in range(run.near_start[s], run.near_start[s + 1]):
            if run.near_since[e] > c.created:
                break
            if run.storages[run.near_id[e]].material == 0:
                classes.join(run, s, run.near_id[e])
    _tell(run, why, s)


@kernel
def _lock(run: RecomputeTables, s: int) -> None:
    storage = run.storages[s]
    if storage.locks == 0:
        choice.remove(run, s)
    storage.locks += 1


@kernel
def _tell(run: RecomputeTables, what: int, which: int) -> None:
    c = run.control[0]
    row = run.log[c.logged]
    row.what, row.which, row.at = what, which, c.at
    c.logged += 1
