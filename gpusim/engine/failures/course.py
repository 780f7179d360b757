"""Where a long run stands: how fast it works, what is due next, and time that passes; its log."""

from __future__ import annotations

import math

from gpusim.base.compiled import kernel
from gpusim.engine.failures.tables import (
    BLOCKED,
    COMPUTING,
    NEVER,
    SHORT,
    LongRun,
)


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
    if s.job[0].ages and c.phase <= BLOCKED:
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
