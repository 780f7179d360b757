"""What the log of unified memory says of each record for itself: which values a kind of record has, and how its times lie.

The walk (page_walk.py) rests on this: a record of no processor or of no block is told here, and the walk is not begun.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from gpusim.referee.report import MOST, Findings
from gpusim.results.page_log import (
    BATCH,
    CAUSES,
    COPY,
    COUNTER,
    DEMAND,
    EVICTION,
    FILL,
    GONE,
    HOST,
    KEEP,
    KINDS,
    NOTICE,
    PIN,
    PREFETCH,
    READ,
    UNPIN,
    WRITE,
)

NONE = -1
Mask = npt.NDArray[np.bool_]
ANY = range(len(CAUSES))
CAUSED = {  # the causes that a kind may have; those not named have none
    READ: (DEMAND,), WRITE: (DEMAND,), NOTICE: (COUNTER,), KEEP: (EVICTION,), COPY: ANY, GONE: (NONE, *ANY),
    FILL: tuple(cause for cause in ANY if cause != EVICTION),
}  # fmt: skip
FROM = (COPY, KEEP, PIN)  # kinds that name a source
TICK = 1e-3  # ns: times are sums of floats


class _Columns:
    """The columns, and where to say what is wrong with them."""

    def __init__(self, log: Mapping[str, Any], processors: int, found: Findings) -> None:
        self.kind, self.cause, self.processor, self.source, self.block, self.batch = (
            log[name].astype(np.int64) for name in ("kind", "cause", "processor", "source", "block", "batch")
        )
        self.time, self.since, self.until, self.mask = log["time"], log["since"], log["until"], log["mask"]
        self.processors, self.found = processors, found

    def say(self, wrong: Mask, what: str, values: Any, expected: str) -> bool:
        """Tell of each record that is wrong, by its kind and a value; whether there is one."""
        records = np.flatnonzero(wrong)[:MOST]
        for record in records.tolist():
            kind = int(self.kind[record])
            named = KINDS[kind] if 0 <= kind < len(KINDS) else str(kind)
            self.found.say(record, f"a record '{named}' has {what} {values[record]:.15g}", expected)
        return len(records) > 0

    @property
    def gpu(self) -> Any:
        """Of a copy: in whose copy engine it is."""
        return np.where(self.processor != HOST, self.processor, self.source)


def check(log: Mapping[str, Any], said: Mapping[str, Any], blocks: int, found: Findings) -> bool:
    """Whether the walk may follow: processors, sources and blocks are those of the run.  said: `paging` of the spec."""
    c = _Columns(log, int(said["processors"]), found)
    sound = _places(c, blocks)
    if sound:
        _causes(c)
        _times(c)
        _copies(c)
        _leaving(c)
    return sound


def _places(c: _Columns, blocks: int) -> bool:
    """Processors, sources and blocks exist, and are named where the kind has them, and nowhere else."""
    kind, most = c.kind, c.processors - 1
    if c.say((kind < 0) | (kind >= len(KINDS)), "the number", kind, f"0 to {len(KINDS) - 1}"):
        return False
    of_gpu, none = (kind == BATCH) | (kind == NOTICE), (kind == UNPIN)
    wrong = (c.processor < of_gpu) | (c.processor > most)
    said = c.say(~none & wrong, "processor", c.processor, f"at most {most}, and a GPU for batches and notices")
    said |= c.say(none & (c.processor != NONE), "processor", c.processor, "none, -1")
    has = np.isin(kind, FROM)
    elsewhere = (kind == PIN) | (c.source != c.processor)
    said |= c.say(has & ~((c.source >= 0) & (c.source <= most) & elsewhere), "source", c.source, f"another of {most + 1}")
    said |= c.say(~has & (c.source != NONE), "source", c.source, "none, -1")
    batch = kind == BATCH
    said |= c.say(batch & (c.block != NONE), "block", c.block, "none, -1")
    said |= c.say(~batch & ((c.block < 0) | (c.block >= blocks)), "block", c.block, f"0 to {blocks - 1}")
    return not said


def _causes(c: _Columns) -> None:
    """The cause is one that the kind may have, and evictions go from a GPU to the host."""
    allowed = np.zeros((len(KINDS), len(CAUSES) + 1), bool)
    for kind in range(len(KINDS)):
        allowed[kind, [1 + cause for cause in CAUSED.get(kind, (NONE,))]] = True
    within = (c.cause >= NONE) & (c.cause < len(CAUSES))
    way = (c.cause != EVICTION) | np.where(c.kind == GONE, c.processor != HOST, c.processor == HOST)
    c.say(~(within & allowed[c.kind, np.where(within, c.cause, 0) + 1] & way), "cause", c.cause, "one that it can have")
    batches = np.flatnonzero(c.kind == BATCH)
    bits = np.zeros(len(c.kind), bool)
    bits[batches] = c.mask[batches].any(1)
    c.say(bits, "pages, and processor", c.processor, "none, faults are told by block")
    c.say(c.batch != np.cumsum(c.kind == BATCH), "batch", c.batch, "as many as began up to it")


def _times(c: _Columns) -> None:
    """A batch lasts from its record on, a copy begins no sooner than its own; all others are at one moment.  A GPU's batches
    are served one after another."""
    copy, batch = c.kind == COPY, c.kind == BATCH
    c.say(~(copy | batch) & (c.until != c.time), "an end at", c.until, "its own time")
    c.say(~copy & (c.since != c.time), "a begin at", c.since, "its own time")
    c.say(copy & ~(c.since >= c.time), "a begin at", c.since, "its own time or later")
    c.say(~(c.until >= c.since), "an end at", c.until, "its begin or later")
    for gpu in range(1, c.processors):
        mine = np.flatnonzero(batch & (c.processor == gpu))
        late = np.zeros(len(c.kind), bool)
        late[mine[1:]] = c.since[mine[1:]] < c.until[mine[:-1]] - TICK
        c.say(late, "a begin at", c.since, "behind the GPU's batch before it")


def _copies(c: _Columns) -> None:
    """Copies of a GPU follow one another, or are of one service; those of a batch are over when it is.

    What notices ask for goes beside both.
    """
    copy, wrong, beyond = c.kind == COPY, np.zeros(len(c.kind), bool), np.zeros(len(c.kind), bool)
    began = np.maximum.accumulate(np.where(c.kind == BATCH, np.arange(len(c.kind)), NONE))
    for gpu in range(1, c.processors):
        mine = np.flatnonzero(copy & (c.gpu == gpu))
        since, until = c.since[mine], c.until[mine]
        if (c.processor[c.kind == NOTICE] == gpu).any():
            continue
        together = (since[1:] == since[:-1]) & (until[1:] == until[:-1])
        wrong[mine[1:]] = ~together & (since[1:] < until[:-1] - TICK)
        batch = began[mine]
        within = (batch != NONE) & (c.processor[batch] == gpu) & (until > since)
        of_batch = within & (c.time[mine] < c.until[batch]) & np.isin(c.cause[mine], (DEMAND, EVICTION, PREFETCH))
        beyond[mine] = of_batch & (until > c.until[batch] + TICK)
    c.say(wrong, "a begin at", c.since, "behind the GPU's copy before it, or with it")
    c.say(beyond, "an end at", c.until, "before its batch is served")


def _leaving(c: _Columns) -> None:
    """What is copied and then leaves where it came from does both at once, for one cause; a prefetch may go with any."""
    if len(c.kind) == 0:
        return
    moves, goes = c.kind[:-1] == COPY, c.kind[1:] == GONE
    same = moves & goes & (c.block[:-1] == c.block[1:]) & (c.source[:-1] == c.processor[1:])
    why, then = c.cause[:-1], c.cause[1:]
    at_once = same & (c.time[:-1] == c.time[1:])
    other = np.zeros(len(c.kind), bool)
    other[1:] = at_once & (why != then) & ((why != PREFETCH) | (then == NONE))
    c.say(other, "cause", c.cause, "that of the copy before it")
    apart = np.zeros(len(c.kind), bool)
    apart[1:] = same & ~at_once & (why == then) & np.isin(then, (DEMAND, PREFETCH, EVICTION, COUNTER))
    c.say(apart, "the time", c.time, "that of the copy before it")
