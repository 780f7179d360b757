"""About how long a program takes under a plan: one stream of kernels, two copy engines, memory without addresses.

What searches over plans ask thousands of times; the engine itself is asked only about the best.  Kernels run in order, copies
in one direction one after the other; whoever takes bytes waits for the copies that empty them, those that were given back
first; what is not there is brought in on demand, and where room is lacking the least recently used leaves.  The host, the
allocator and the links' sharing are left out.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gpusim.base.compiled import kept
from gpusim.policies.planning import EVICT, Schedule, View
from gpusim.trace.trace import ALLOC, FREE, OP

ABSENT, HERE, BELOW = range(3)


def estimate(view: View, plan: Schedule, room: int | None = None) -> float:
    """ns until the last kernel ends; infinite where some operator does not fit into `room` bytes (None: all there are)."""
    w, a = view.work, plan.actions
    if not view.tiers:
        return float(w.clock[-1] + w.duration[-1]) if len(w.duration) else 0.0
    tier, t = view.tiers[0], w.trace
    return float(
        _run(
            t.kind, t.arg, t.size, w.acc_start, w.acc_unit, w.acc_write, w.has_data, w.duration, a["at"], a["verb"], a["unit"],
            view.capacity if room is None else room, 1 / tier.read, tier.read_latency, 1 / tier.write, tier.write_latency,
        )
    )  # fmt: skip


@kept()
def _run(
    kind: Any, arg: Any, size: Any, acc_start: Any, acc_unit: Any, acc_write: Any, has_data: Any, duration: Any, at: Any,
    verb: Any, unit: Any, room: int, read: float, read_latency: float, write: float, write_latency: float,
) -> float:  # fmt: skip
    n = size.size
    where, copied = np.zeros(n, np.int64), np.zeros(n, np.bool_)  # copied: the copy below is valid
    data, lock = has_data > 0, np.full(n, -1, np.int64)
    ready, used = np.zeros(n), np.zeros(n)  # when its bytes and data are there, when its latest kernel ends
    saved = np.zeros(n)                     # when the copy below is complete
    last = np.zeros(n, np.int64)            # step of its latest use
    here, slot, count = np.empty(n, np.int64), np.empty(n, np.int64), 0
    given, when = np.empty(kind.size + acc_unit.size + at.size + 1, np.int64), np.empty(kind.size + acc_unit.size + at.size + 1)
    given[0], when[0], head, tail = room, 0.0, 0, 1  # bytes given back and from when on, in the order in which they were
    free, end, out_end, in_end = room, 0.0, 0.0, 0.0
    op, next_ = 0, 0
    for e in range(kind.size):
        k = kind[e]
        # What is wanted here now: a new tensor, or what the plan and the operator name.
        first, rows = 0, 0
        if k == ALLOC:
            rows = 1
        elif k == FREE:
            u = arg[e]
            if where[u] == HERE:
                given[tail], when[tail] = size[u], max(used[u], ready[u])
                tail += 1
                free += size[u]
                count -= 1
                here[slot[u]] = here[count]
                slot[here[count]] = slot[u]
            where[u] = ABSENT
            continue
        elif k == OP:
            op = arg[e]
            first = next_
            while next_ < at.size and at[next_] == op:
                next_ += 1
            rows = next_ - first + acc_start[op + 1] - acc_start[op]
            for i in range(acc_start[op], acc_start[op + 1]):
                lock[acc_unit[i]] = e
        planned = next_ - first
        for row in range(rows):
            leaving, asked = -1, -1
            if k == ALLOC:
                asked = arg[e]
            elif row >= planned:
                asked = acc_unit[acc_start[op] + row - planned]
                if where[asked] != BELOW:
                    continue
            elif verb[first + row] == EVICT:
                leaving = unit[first + row]
                if where[leaving] != HERE or lock[leaving] == e:
                    continue
            else:
                asked = unit[first + row]
                if where[asked] != BELOW or free < size[asked]:
                    continue
            while True:
                if asked >= 0:
                    if free >= size[asked]:
                        break
                    for i in range(count):
                        u = here[i]
                        if lock[u] != e and (leaving < 0 or last[u] < last[leaving]):
                            leaving = u
                    if leaving < 0:
                        return np.inf
                u = leaving
                done = max(used[u], ready[u])
                if data[u] and not copied[u]:
                    out_end = max(out_end, done) + write_latency + size[u] * write
                    done, copied[u] = out_end, True
                    saved[u] = done
                given[tail], when[tail] = size[u], done
                tail += 1
                free += size[u]
                where[u] = BELOW
                count -= 1
                here[slot[u]] = here[count]
                slot[here[count]] = slot[u]
                leaving = -1
                if asked < 0:
                    break
            if asked >= 0:
                u, wanted, since = asked, size[asked], 0.0
                while wanted > 0:
                    take = min(wanted, given[head])
                    since = max(since, when[head])
                    given[head] -= take
                    wanted -= take
                    if given[head] == 0:
                        head += 1
                free -= size[u]
                if where[u] == BELOW and data[u]:
                    in_end = max(in_end, since, saved[u]) + read_latency + size[u] * read
                    since = in_end
                where[u], ready[u], used[u], last[u] = HERE, since, 0.0, e
                here[count], slot[u] = u, count
                count += 1
        if k == OP:
            start = end
            for i in range(acc_start[op], acc_start[op + 1]):
                start = max(start, ready[acc_unit[i]])
            end = start + duration[op]
            for i in range(acc_start[op], acc_start[op + 1]):
                u = acc_unit[i]
                used[u], last[u] = end, e
                if acc_write[i]:
                    data[u], copied[u] = True, False
    return end
