"""The loop of a long run: which of its events is next, and what it changes.

At equal times a flush ends before a phase, a phase before a repair, all of them before a failure.
"""

from __future__ import annotations

import math

from numba import types

from gpusim.base.compiled import entry, kernel, outlined
from gpusim.engine.failures.tables import (
    ASK,
    BEGAN,
    BLOCKED,
    COMPUTING,
    COPYING,
    CROWDED,
    DEGRADE,
    DOWN,
    DRAWS,
    ENDED,
    FAILED,
    FINISHED,
    GROWN,
    LOG_FULL,
    LONG_RUN,
    LOSE_NODE,
    NEVER,
    OWN,
    PEERS,
    RAN_SHORT,
    REACHED,
    RECOVERED,
    SAFE,
    SENT,
    SHORT,
    SHRINK,
    SHRUNK,
    SLOW,
    STEPPED,
    STORAGE,
    STUCK,
    TAKEN,
    LongRun,
)

MOST_DRAWS, MOST_ROWS = 4, 10  # that one event uses


@kernel
def note(s: LongRun, kind: int, node: int, cause: int, value: float) -> None:
    """A record of the log; there is room for it."""
    c = s.course[0]
    if c.log_on:
        row = s.log[c.logged]
        c.logged += 1
        row.t, row.kind, row.node, row.cause, row.progress, row.value = c.now, kind, node, cause, c.progress, value


@kernel
def draw(s: LongRun) -> float:
    """The next random number."""
    c = s.course[0]
    c.drawn += 1
    return float(s.draws[c.drawn - 1])


@kernel
def components(s: LongRun, kind: int) -> float:
    """How many components of this kind are at work."""
    c, each = s.course[0], s.failure[kind].each
    return float(c.used * each) if each > 0 else 1.0


@kernel
def hazard(s: LongRun) -> float:
    """Failures of all components at work, 1/ns."""
    total = 0.0
    if s.course[0].phase != SHORT:
        for kind in range(s.failure.size):
            total += s.failure[kind].rate * components(s, kind)
    return total


@kernel
def speed(s: LongRun) -> float:
    """Of the work, of its full strength."""
    c = s.course[0]
    size = s.size[c.used]
    rate = size.pace * c.speed
    return float(rate * size.beside[c.flush_to] if c.flush_ends < NEVER else rate)


@kernel
def size_of(s: LongRun) -> float:
    """Of the checkpoint at hand, its share of a whole one."""
    return 1.0 if s.course[0].since_full == 0 else float(s.job[0].share)


@kernel
def phase_ends(s: LongRun) -> int:
    """When the phase ends if nothing comes between, ns."""
    c = s.course[0]
    if c.phase != COMPUTING:
        return int(c.ends)
    missing = max(min(c.mark, s.job[0].work) - c.progress, 0.0)
    return int(c.now + math.ceil(missing / speed(s)))


@kernel
def failure_at(s: LongRun) -> int:
    """When the next failure strikes if nothing changes, ns: a told one, or that of the random ones."""
    c, at = s.course[0], NEVER
    rate = hazard(s)
    if rate > 0.0 and c.left / rate < NEVER / 2:
        at = c.now + math.ceil(c.left / rate)
    if c.told < s.told.size:
        at = min(at, max(s.told[c.told].t, c.now))
    return int(min(at, aged_at(s)))


@kernel
def aged_at(s: LongRun) -> int:
    """When the first failure comes that the program's own age brings, ns; NEVER where it does not run."""
    c, at = s.course[0], NEVER
    if c.phase <= BLOCKED:
        for kind in range(s.failure.size):
            if s.failure[kind].after > 0.0:
                at = min(at, max(c.begun + round(s.failure[kind].after), c.now))
    return int(at)


@kernel
def pass_time(s: LongRun, until: int) -> None:
    """All goes on until then."""
    c = s.course[0]
    took = until - c.now
    if c.phase == COMPUTING:
        c.progress = min(c.progress + took * speed(s), min(c.mark, s.job[0].work))
    c.left = max(c.left - took * hazard(s), 0.0)
    c.spent[c.phase] += took
    c.now = until


@kernel
def compute(s: LongRun) -> None:
    """The job works until its next checkpoint is due."""
    c = s.course[0]
    c.phase, c.ends, c.asked, c.mark = COMPUTING, NEVER, s.job[0].asks, c.progress + c.interval


@kernel
def due(s: LongRun) -> None:
    """A checkpoint is due: it is taken as soon as the flush of the one before is over."""
    c, job = s.course[0], s.job[0]
    if c.flush_ends < NEVER:
        c.phase, c.ends = BLOCKED, NEVER
        return
    c.since_full = c.taken % job.full
    c.phase = COPYING
    c.ends = c.now + round(s.size[c.used].copy * size_of(s))


@kernel
def begin_flush(s: LongRun, level: int) -> None:
    """What has been copied goes on to neighbours or to storage."""
    c = s.course[0]
    c.flush_to, c.flush_ends = level, c.now + round(s.size[c.used].flush[level] * size_of(s))
    note(s, SENT, -1, level, float(c.flush_ends))


@kernel
def taken(s: LongRun) -> None:
    """The job has been copied; it works again, while its copy goes on to where it is safe."""
    c, job = s.course[0], s.job[0]
    c.taken += 1
    c.flushed = c.progress
    last = c.progress >= job.work
    note(s, TAKEN, -1, -1, c.interval)
    if job.host:
        c.saved[OWN] = c.progress
    c.then = 1 if last or (job.each > 0 and c.taken % job.each == 0) else 0
    if job.copies > 0:
        begin_flush(s, PEERS)
    elif s.size[c.used].flush[STORAGE] > 0.0 and c.then:
        begin_flush(s, STORAGE)
    elif c.then:
        store(s)
    if last:
        c.phase, c.ends = BLOCKED, NEVER
        c.done = c.flush_ends == NEVER
    elif c.used < job.nodes and c.spare >= job.unit:
        grow(s)
    else:
        compute(s)


@kernel
def store(s: LongRun) -> None:
    """The checkpoint at hand is in storage."""
    c = s.course[0]
    c.saved[STORAGE], c.chain = c.flushed, c.since_full
    note(s, SAFE, -1, STORAGE, c.flushed)


@outlined
def flushed(s: LongRun) -> None:
    """A copy has come to where it went."""
    c, job = s.course[0], s.job[0]
    c.flush_ends = NEVER
    if c.flush_to == STORAGE:
        store(s)
    else:
        c.saved[PEERS] = c.flushed
        s.hollow[:] = 0
        note(s, SAFE, -1, PEERS, c.flushed)
        if c.then and s.size[c.used].flush[STORAGE] > 0.0:
            begin_flush(s, STORAGE)
        elif c.then:
            store(s)
    if c.phase == BLOCKED and c.flush_ends == NEVER:
        if c.progress >= job.work and c.flushed >= job.work:
            c.done = 1
        else:
            due(s)


@outlined
def grow(s: LongRun) -> None:
    """Nodes that have come back join."""
    c, job = s.course[0], s.job[0]
    more = min((job.nodes - c.used) // job.unit, c.spare // job.unit) * job.unit
    s.retired[c.used : c.used + more] = 0.0
    s.hollow[c.used : c.used + more] = 1
    c.used += more
    c.spare -= more
    note(s, GROWN, -1, -1, float(c.used))
    c.phase, c.ends = DOWN, c.now + round(s.size[c.used].regroup)


@outlined
def restart(s: LongRun, waited: float) -> None:
    """The program starts again from the best checkpoint that is left, with the nodes that there are."""
    c, job = s.course[0], s.job[0]
    best, level = 0.0, -1
    for k in range(3):
        if c.saved[k] > best:
            best, level = c.saved[k], k
    lost = c.progress - best
    c.lost += lost
    c.progress = best
    whole = 1.0 + job.share * c.chain if level == STORAGE else 1.0
    if level >= 0:
        c.loads[level] += 1
    else:
        c.scratch += 1
    took = waited + job.restart + (s.size[c.used].load[level] * whole if level >= 0 else 0.0)
    c.phase, c.ends = DOWN, c.now + round(took)
    note(s, RECOVERED, -1, level, lost)


@outlined
def man(s: LongRun, waited: float) -> None:
    """Spare nodes take the places of those that are gone; too few: the job shrinks, or waits for repairs."""
    c, job = s.course[0], s.job[0]
    c.used += c.held
    c.held = 0
    wanted = min(job.nodes - c.used, c.spare)
    c.used += wanted
    c.spare -= wanted
    if c.used < job.nodes:
        fewer = job.nodes - -(-(job.nodes - c.used) // job.unit) * job.unit
        if fewer >= job.least:
            c.spare += c.used - fewer
            c.used = fewer
            note(s, SHRUNK, -1, -1, float(fewer))
        else:
            c.held, c.used = c.used, 0
            c.phase, c.ends = SHORT, NEVER
            note(s, RAN_SHORT, -1, -1, float(c.held))
            return
    restart(s, waited)


@kernel
def forget_peers(s: LongRun, node: int) -> None:
    """The neighbours' copies are no checkpoint any more if no neighbour holds the part of a node that is gone."""
    c, job, n = s.course[0], s.job[0], s.job[0].nodes
    for back in range(job.copies + 1):
        i, held = (node - back) % n, 0
        for k in range(1, job.copies + 1):
            held += s.hollow[(i + k) % n] == 0
        if s.gone[i] and held == 0:
            c.saved[PEERS] = -1.0


@outlined
def lose_node(s: LongRun, kind: int, node: int) -> None:
    """A node leaves until it is repaired."""
    c, f = s.course[0], s.failure[kind]
    s.repairs[c.broken] = c.now + round(f.repair) if f.repair < NEVER else NEVER
    c.broken += 1
    c.used -= 1
    s.gone[node] = s.hollow[node] = 1
    s.retired[node] = 0.0
    forget_peers(s, node)
    end_episodes(s, node)


@kernel
def be_slow(s: LongRun, node: int, speed: float, lasts: float) -> None:
    """A node is slow for a time; there is a row for it."""
    c = s.course[0]
    row = s.slow[c.slow]
    row.node, row.speed, row.ends = node, speed, c.now + round(lasts) if lasts < NEVER else NEVER
    c.slow += 1
    slowest(s)


@kernel
def slowest(s: LongRun) -> None:
    """All ranks wait for the slowest node."""
    c = s.course[0]
    c.speed, c.slow_ends = 1.0, NEVER
    for i in range(c.slow):
        c.speed, c.slow_ends = min(c.speed, s.slow[i].speed), min(c.slow_ends, s.slow[i].ends)


@outlined
def end_episodes(s: LongRun, node: int) -> None:
    """The node is gone, or, for -1, those are well whose time is over."""
    c, i = s.course[0], 0
    while i < c.slow:
        row = s.slow[i]
        if row.node == node or (node < 0 and row.ends <= c.now):
            c.slow -= 1
            last = s.slow[c.slow]
            row.node, row.ends, row.speed = last.node, last.ends, last.speed
        else:
            i += 1
    slowest(s)


@outlined
def strike(s: LongRun, kind: int, node: int, gpu: int) -> None:
    """A failure of this kind strikes a node."""
    c, job, f = s.course[0], s.job[0], s.failure[kind]
    f.count += 1
    note(s, FAILED, node, kind, 0.0)
    if f.effect == SLOW:
        be_slow(s, node, f.speed, f.lasts)
        return
    leaves = f.effect == LOSE_NODE
    if f.effect == SHRINK:
        s.retired[node, gpu] += f.bytes
        leaves = s.retired[node, gpu] > job.margin
        if not leaves:
            return
    c.interruptions += 1
    if f.effect == DEGRADE:
        be_slow(s, node, f.speed, f.lasts)
    if leaves:
        first, used = node // f.group * f.group, c.used
        for other in range(first, min(first + f.group, used)):
            lose_node(s, kind, other)
    elif f.host_lost:
        s.gone[node] = s.hollow[node] = 1  # the node stays, what its memory kept is lost
        forget_peers(s, node)
    if f.host_lost or not job.agent:
        c.saved[OWN] = -1.0
        c.flush_ends = NEVER  # what was on its way from the nodes' memory does not arrive
    man(s, f.detect)


@outlined
def fail(s: LongRun) -> None:
    """The failure whose time has come."""
    c = s.course[0]
    if c.told < s.told.size and s.told[c.told].t <= c.now:
        row = s.told[c.told]
        c.told += 1
        if c.phase != SHORT:
            strike(s, row.kind, min(row.node, c.used - 1), 0)
        return
    if aged_at(s) <= c.now:
        kind = 0
        while not 0 < round(s.failure[kind].after) <= c.now - c.begun:
            kind += 1
        strike(s, kind, 0, 0)
        return
    total, kind = hazard(s) * draw(s), 0
    while kind < s.failure.size - 1 and total >= s.failure[kind].rate * components(s, kind):
        total -= s.failure[kind].rate * components(s, kind)
        kind += 1
    node = min(int(draw(s) * c.used), c.used - 1)
    gpu = min(int(draw(s) * s.job[0].gpus), s.job[0].gpus - 1)
    c.left = -math.log1p(-draw(s))
    strike(s, kind, node, gpu)


@outlined
def repaired(s: LongRun) -> None:
    """Nodes come back."""
    c, job, i = s.course[0], s.job[0], 0
    while i < c.broken:
        if s.repairs[i] <= c.now:
            c.broken -= 1
            s.repairs[i] = s.repairs[c.broken]
            c.spare += 1
        else:
            i += 1
    offer(s)


@outlined
def offer(s: LongRun) -> None:
    """Spare nodes are there, of which a job that waits takes what it needs."""
    c, job = s.course[0], s.job[0]
    if c.phase == SHORT and c.held + c.spare >= min(job.nodes, job.least):
        man(s, 0.0)


@kernel
def next_repair(s: LongRun) -> int:
    """When the next node comes back, ns."""
    at = NEVER
    for i in range(s.course[0].broken):
        at = min(at, s.repairs[i])
    return int(at)


@kernel
def end_phase(s: LongRun) -> None:
    """The phase is over."""
    c = s.course[0]
    if c.phase == COMPUTING:
        due(s)
    elif c.phase == COPYING:
        taken(s)
    elif c.phase == DOWN:
        s.gone[:] = 0
        c.begun = c.now
        if s.job[0].rebalance and c.progress > 0.0 and c.flush_ends == NEVER and s.hollow.any():
            c.flushed, c.then = c.progress, 0
            begin_flush(s, PEERS)
        compute(s)


@entry(types.int64(LONG_RUN, types.int64))
def run_until(s: LongRun, until: int) -> int:
    """Goes on to `until` ns, or to what needs Python: REACHED, FINISHED, DRAWS, ASK, LOG_FULL, CROWDED or STUCK."""
    c = s.course[0]
    while True:
        if c.done:
            note(s, ENDED, -1, -1, 0.0)
            return FINISHED
        if c.drawn + MOST_DRAWS > s.draws.size:
            return DRAWS
        if c.log_on and c.logged + MOST_ROWS > s.log.size:
            return LOG_FULL
        if c.slow == s.slow.size:
            return CROWDED
        if c.asked and c.phase == COMPUTING:
            return ASK
        phase, repair, failure = phase_ends(s), next_repair(s), failure_at(s)
        at = min(phase, repair, failure, c.flush_ends, c.slow_ends)
        if at >= NEVER:
            return STUCK
        if at > until:
            pass_time(s, until)
            return REACHED
        pass_time(s, at)
        was = c.phase
        if c.flush_ends == at:
            flushed(s)
        elif c.slow_ends == at:
            end_episodes(s, -1)
        elif phase == at:
            if c.phase == COMPUTING:
                c.progress = min(c.mark, s.job[0].work)
            end_phase(s)
        elif repair == at:
            repaired(s)
        else:
            fail(s)
        if c.phase != was:
            note(s, BEGAN, -1, c.phase, float(c.used))
        if s.job[0].shared:
            return STEPPED


@entry(types.int64(LONG_RUN))
def next_event(s: LongRun) -> int:
    """When something happens next, ns; NEVER: nothing does."""
    c = s.course[0]
    if c.done or (c.asked and c.phase == COMPUTING):
        return int(c.now)
    return int(min(phase_ends(s), next_repair(s), failure_at(s), c.flush_ends, c.slow_ends))


@entry(types.int64(LONG_RUN, types.int64))
def offered(s: LongRun, now: int) -> int:
    """A job that waits takes the nodes that it needs, where there are as many; how many are left."""
    c = s.course[0]
    pass_time(s, now)
    was = c.phase
    offer(s)
    if c.phase != was:
        note(s, BEGAN, -1, c.phase, float(c.used))
    return int(c.spare)


