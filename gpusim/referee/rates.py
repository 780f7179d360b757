"""Copies against the links that they pass: none is faster than its link, nor are several together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from gpusim.referee.activities import NEVER, ActivityTimes
from gpusim.referee.report import Findings
from gpusim.referee.tiers import Tiers
from gpusim.trace.trace import COLLECTIVE, COPY_IN, COPY_OUT, COPY_PEER, I64, KERNEL, NVME_READ, NVME_WRITE, Trace


def link_rates(acts: ActivityTimes, trace: Trace, tiers: Tiers, rates: Mapping[str, Any], found: Findings) -> None:
    """No copy, and no copies together, moved more than the link can carry in the time; rates in bytes/s.

    Operators with a recorded time took that, whatever else was under way.  Without links of their own GPUs meet over the one
    to the host, which then carries a collective in both directions.
    """
    activity = np.where(trace.duration < 0, trace.activity, KERNEL)[acts.op] if trace.ops else np.zeros(len(acts.op))
    activity = np.where((acts.op >= 0) & ~acts.met, activity, KERNEL)
    between = 1 * np.isin(activity, (COLLECTIVE, COPY_PEER))
    shared = 0 * between if rates.get("peer") else between
    into, out = (activity == COPY_IN) + shared, (activity == COPY_OUT) + shared
    swaps_in, swaps_out = (acts.copy >= 0) & (acts.copy & 255 == 0), (acts.copy >= 0) & (acts.copy >> 8 & 255 == 0)
    loads = {
        "h2d": into, "d2h": out, "both": into + out, "peer": between, "peer_in": between,
        "nvme_read": 1 * (activity == NVME_READ), "nvme_write": 1 * (activity == NVME_WRITE),
        "decompress": 1 * swaps_in, "compress": 1 * swaps_out,
    }  # fmt: skip
    loads = {name: acts.size * times for name, times in loads.items()}
    for m, (way_in, way_out) in enumerate(tiers.routes, 1):
        for name in way_in:
            loads[name] = loads.get(name, 0) + acts.size * (swaps_in & (acts.copy >> 8 & 255 == m))
        for name in way_out:
            loads[name] = loads.get(name, 0) + acts.size * (swaps_out & (acts.copy & 255 == m))
    for direction, moved in enumerate(remote(acts, trace, tiers)):
        for name in tiers.routes[0][direction]:
            loads[name] = loads[name] + moved
    for name, load in loads.items():
        rate = rates.get(name)
        if not rate or not np.isfinite(rate):
            continue
        per_ns = float(rate) / 1e9
        i = np.flatnonzero((load > 0) & (acts.end < NEVER))
        carried(Carried(i, acts.start[i], acts.end[i], load[i], acts.end_record[i], [found] * len(i)), name, per_ns)
        found.count("copies against link rates", len(i))


class Carried(NamedTuple):
    """(n,) what has passed a link: activity, when in ns, bytes, the record of its end, and whose it is."""

    activity: I64
    start: I64
    end: I64
    size: I64
    record: I64
    found: Sequence[Findings]


def carried(c: Carried, name: str, per_ns: float) -> None:
    """Whether the link lets that through at its rate, each alone and all together."""
    # One tick, because ends are seen at whole nanoseconds.
    slack = per_ns * 1.0
    fast = np.flatnonzero(c.size > per_ns * (c.end - c.start) * (1 + 1e-9) + slack)
    for k in fast[:1].tolist():
        c.found[k].say(c.record[k], f"activity {c.activity[k]} moves {c.size[k]} bytes in {c.end[k] - c.start[k]} ns",
                       f"at most {per_ns:g} bytes/ns ({name})")  # fmt: skip
    if len(c.size):
        worst, at = most_over(c.start, c.end, c.size.astype(np.float64), per_ns)
        if worst > slack + 1e-9 * c.size.sum(dtype=np.float64):
            c.found[at].say(c.record[at], f"the link {name} has carried {worst:.0f} bytes too many by here",
                            f"at most {per_ns:g} bytes/ns in every interval")  # fmt: skip


def remote(acts: ActivityTimes, trace: Trace, tiers: Tiers) -> tuple[I64, I64]:
    """Bytes that each activity reads and writes below the device by itself: kernels, of the tensors that stay there."""
    size = trace.size * tiers.home(trace.tensors)
    out = []
    for start, ids in ((trace.read_start, trace.read_id), (trace.write_start, trace.write_id)):
        of_op = np.diff(np.concatenate([[0], np.cumsum(size[ids])])[start])
        of_op = np.append(np.where(trace.activity == KERNEL, of_op, 0), 0)  # the last of them for swaps, -1
        out.append(of_op[acts.op])
    return out[0], out[1]


def most_over(start: I64, end: I64, size: npt.NDArray[np.float64], rate: float) -> tuple[float, int]:
    """The most by which copies inside any interval exceed rate x length, bytes, and the copy that ends it.

    For an interval from s to e: (bytes of copies ended by e) - (bytes of copies started before s) is at most what the
    copies inside moved.  Its maximum over all s < e, less rate x (e - s), takes one pass over the sorted times.
    """
    by_start, by_end = np.argsort(start, kind="stable"), np.argsort(end, kind="stable")
    s, e = start[by_start], end[by_end]
    started_before = np.concatenate([[0.0], np.cumsum(size[by_start])[:-1]])
    low = np.minimum.accumulate(started_before - rate * (s - s[0]))  # best interval start up to each start
    ended = np.cumsum(size[by_end]) - rate * (e - s[0])
    over = ended - low[np.searchsorted(s, e, side="right") - 1]
    worst = int(np.argmax(over))
    return float(over[worst]), int(by_end[worst])
