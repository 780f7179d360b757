"""Blocks, versions and hazards: one walk over the log in program order, knowing when each activity ran.

The argument, in two halves.  *In program order* every kernel finds its tensors in device memory, and what it reads is
the version written last: a write makes all other copies stale, a copy carries the version of its source.  *In time* two
activities that touch the same bytes, at least one of them changing what the bytes mean, run in program order and do not
overlap.  Together: the run read and wrote the same data as if everything had happened one after the other.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gpusim.base.compiled import kept
from gpusim.referee import accesses, blocks
from gpusim.referee.activities import ActivityTimes
from gpusim.referee.codes import LEDGER, SAYS
from gpusim.referee.records import Records
from gpusim.referee.report import Findings
from gpusim.referee.tiers import Tiers
from gpusim.referee.world import World, world
from gpusim.results.log import COPY, CREATE, DESTROY, DROP, ISSUE, MOVE, OOM, PLACE, REDIRECT, RELEASE, RESERVE, UNPLACE
from gpusim.trace.trace import Trace


def walk(
    log: Records, acts: ActivityTimes, trace: Trace, tiers: Tiers, found: Findings
) -> dict[str, int]:
    """Check all records in program order; returns the ledger, and the peak of each tier as "peak 1" and so on."""
    column = {name: log[name] for name in ("kind", "a", "b", "addr", "bytes")}
    many = int(np.count_nonzero((column["kind"] == PLACE) | (column["kind"] == MOVE)))
    calls = int(np.count_nonzero((column["kind"] == RESERVE) | (column["kind"] == RELEASE)))
    w = world(acts, trace, tiers, many, calls)
    said = _each_record(column["kind"], column["a"], column["b"], column["addr"], column["bytes"], w)
    for record, code, x, y in w.out[:said].tolist():
        what, expected = SAYS[code]
        found.say(record, what.format(x=x, y=y), expected.format(x=x, y=y))
    counts = dict(zip(LEDGER, w.ledger.tolist(), strict=True))
    found.count("blocks", counts["blocks"])
    found.count("accesses", counts["accesses"])
    resident = counts["created_bytes"] + counts["arrived_bytes"]
    resident -= counts["freed_bytes"] + counts["dropped_bytes"] + counts["departed_bytes"]
    if resident != counts["allocated_now"] and not said:
        found.say(-1, f"created + arrived - freed - dropped - departed is {resident} bytes",
                  f"{counts['allocated_now']} bytes, what is resident")  # fmt: skip
    for m in range(1, tiers.memories):
        for i, what in enumerate(("in", "out", "peak")):
            counts[f"{what} {m}"] = int(w.tier_bytes[m, i])
    return counts


@kept(_nrt=False)
def _each_record(kind: Any, a: Any, b: Any, addr: Any, size: Any, w: World) -> int:
    """One step per record; returns how much is wrong."""
    for i in range(kind.size):
        k, u, m, at, n = kind[i], a[i], b[i], addr[i], size[i]
        if k == CREATE:
            blocks.create(w, i, u, n)
        elif k == DESTROY:
            blocks.destroy(w, i, u, n)
        elif k == PLACE:
            blocks.place(w, i, u, m, at, n)
        elif k == UNPLACE:
            blocks.unplace(w, i, u, m, at, n)
        elif k == DROP:
            blocks.drop(w, i, u, m, at, n)
        elif k == COPY:
            if not w.cancelled[at]:
                accesses.copy(w, i, u, m, at, n)
        elif k == REDIRECT:
            accesses.redirect(w, i, u, m, at, n)
        elif k == ISSUE:
            accesses.issue(w, i, u, at)
        elif k == RESERVE:
            blocks.reserve(w, i, at, n)
        elif k == RELEASE:
            blocks.release(w, i, at, n)
        elif k == MOVE:
            blocks.move(w, i, u, m, at, n)
        elif k == OOM:
            blocks.out_of_memory(w, i, m, at)
    blocks.end(w, kind.size)
    return int(w.said[0])


