"""What failures do to a long run: nodes that leave, come back, or are slow, and from where the program goes on."""

from __future__ import annotations

import math

from gpusim.base.compiled import kernel, outlined
from gpusim.engine.failures.course import aged_at, components, draw, hazard, note
from gpusim.engine.failures.tables import (
    DEGRADE,
    DOWN,
    FAILED,
    GROWN,
    LOSE_NODE,
    NEVER,
    OWN,
    PEERS,
    RAN_SHORT,
    RECOVERED,
    SHORT,
    SHRINK,
    SHRUNK,
    SLOW,
    STORAGE,
    LongRun,
)


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


@outlined
def offer(s: LongRun) -> None:
    """Spare nodes are there, of which a job that waits takes what it needs."""
    c, job = s.course[0], s.job[0]
    if c.phase == SHORT and c.held + c.spare >= min(job.nodes, job.least):
        man(s, 0.0)


@outlined
def repaired(s: LongRun) -> None:
    """Nodes come back."""
    c, i = s.course[0], 0
    while i < c.broken:
        if s.repairs[i] <= c.now:
            c.broken -= 1
            s.repairs[i] = s.repairs[c.broken]
            c.spare += 1
        else:
            i += 1
    offer(s)


@kernel
def next_repair(s: LongRun) -> int:
    """When the next node comes back, ns."""
    at = NEVER
    for i in range(s.course[0].broken):
        at = min(at, s.repairs[i])
    return int(at)


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
