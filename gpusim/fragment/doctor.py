"""The OOM doctor: why a program ran out of memory, what holds it, and what would help."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from gpusim.fragment import causes as why
from gpusim.fragment import growth, holders, inputs, verdict
from gpusim.fragment.answer import Answer, Cause
from gpusim.fragment.moment import Moment, block_sizes, live_bytes, moment
from gpusim.fragment.replay import ENDLESS
from gpusim.trace.trace import Trace


def examine(path_or_trace: str | Path | Trace, *, capacity: int | None = None, device: int | None = None) -> Answer:
    """The answer for one program on one device.

    capacity  bytes that the allocator could hold were it alone on the device; None: as far as the recording tells
    device    which GPU of a snapshot of several; None: the one where a request failed, else the one that holds most
    """
    if isinstance(path_or_trace, Trace):
        return answer(path_or_trace, capacity)
    traces = inputs.open_all(str(path_or_trace))
    chosen = inputs.choose(traces, device)
    found = answer(traces[chosen], capacity)
    return _with_others(found, traces, chosen)


def answer(trace: Trace, capacity: int | None = None) -> Answer:
    """Causes, holders and remedies of one trace."""
    m = moment(trace)
    limit = _limit(m, capacity)
    whole = max(capacity, limit) if capacity and limit < ENDLESS else limit
    found_steps = growth.steps(trace)
    leaks = growth.leaks(trace, m.event if m.failed else trace.events, found_steps)
    live = live_bytes(trace, block_sizes(trace))
    causes = why.causes(m, leaks, limit, whole, str(trace.meta.get("alloc_conf") or ""), int(live.max(initial=0)))
    return Answer(
        causes=causes, verdict=verdict.verdict(m, causes, limit), moment=m, limit=limit, device=whole,
        holders=holders.holders(trace, m.event), leaks=leaks, steps=found_steps, end=int(live[-1]) if len(live) else 0,
        name=trace.name,
    )  # fmt: skip


def _limit(m: Moment, capacity: int | None) -> int:
    """What the allocator could hold at the moment: what it held and what the device had left, else as given."""
    return m.limit if m.limit < ENDLESS else capacity or ENDLESS


def _with_others(found: Answer, traces: dict[int, Trace], chosen: int) -> Answer:
    """Other devices of the snapshot: a request that failed there and not here is the cause."""
    if found.moment is None or found.moment.failed:
        return found
    for number, trace in traces.items():
        other = moment(trace) if number != chosen else None
        if other and other.failed:
            found.causes.append(Cause("other_device", other.size, f"device {number} ran out of memory, not device {chosen}"))
    return found
