"""The loop of a long run: which of its events is next, and what it changes.

At equal times a flush ends before a phase, a phase before a repair, all of them before a failure.
"""

from __future__ import annotations

from numba import types

from gpusim.base.compiled import entry, kernel, outlined
from gpusim.engine.failures.course import failure_at, note, pass_time, phase_ends, size_of
from gpusim.engine.failures.recovery import end_episodes, fail, grow, next_repair, offer, repaired
from gpusim.engine.failures.tables import (
    ASK,
    BEGAN,
    BLOCKED,
    COMPUTING,
    COPYING,
    CROWDED,
    DOWN,
    DRAWS,
    ENDED,
    FINISHED,
    LOG_FULL,
    LONG_RUN,
    NEVER,
    OWN,
    PEERS,
    REACHED,
    SAFE,
    SENT,
    STEPPED,
    STORAGE,
    STUCK,
    TAKEN,
    LongRun,
)

MOST_DRAWS, MOST_ROWS = 4, 10  # that one event uses


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
