"""The OOM doctor: why a program ran out of memory, what holds it, and what would help."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from gpusim.fragment import candidates, growth, holders, inputs, verdict
from gpusim.fragment import causes as why
from gpusim.fragment.answer import Answer, Cause
from gpusim.fragment.baseline import Baseline, Outcome, baseline, under
from gpusim.fragment.moment import block_sizes, has_segments, live_bytes, moment, replayed
from gpusim.fragment.programs import programs
from gpusim.fragment.recorded import capacity_of
from gpusim.fragment.remedies import rank, settings
from gpusim.fragment.replay import ENDLESS, Replay
from gpusim.trace.trace import Trace


def examine(path_or_trace: str | Path | Trace, *, capacity: int | None = None, device: int | None = None) -> Answer:
    """The answer for one program on one device.

    capacity  bytes that the allocator could hold were it alone on the device; None: as far as the recording tells
    device    which GPU of a snapshot of several; None: the one where a request failed, else the one that holds most
    """
    if isinstance(path_or_trace, Trace):
        return examined(path_or_trace, capacity)
    traces = inputs.open_all(str(path_or_trace))
    chosen = inputs.choose(traces, device)
    return with_others(examined(traces[chosen], capacity), traces, chosen)


def examined(trace: Trace, capacity: int | None = None) -> Answer:
    """The answer for one trace, with the settings of its own allocator as candidates."""
    if trace.meta.get("incomplete"):
        reason = f"the snapshot does not tell all: {trace.meta['incomplete']}"
        return Answer(name=trace.name, verdict=f"No verdict: {reason}.", refusal=reason)
    base = compared_with(trace, capacity)
    tried = [under(base, c) for c in candidates.advisable(trace) if c != base.own] if base.exact else []
    return answer(trace, capacity, base, tried)


def compared_with(trace: Trace, capacity: int | None) -> Baseline:
    """The program as it ran, within what the recording says that the device had, else within `capacity`."""
    return baseline(trace, None if capacity_of(trace) < ENDLESS else capacity)


def answer(trace: Trace, capacity: int | None, base: Baseline, tried: Sequence[Outcome]) -> Answer:
    """Causes and holders as recorded, remedies from what was tried over the program's own replay."""
    found = seen(trace, capacity, None if has_segments(trace) else base.replay)
    if not base.exact:
        return replace(found, refusal=base.reason)
    return replace(found, advice=rank(base, [*settings(base, tried), *programs(base, found)], found.device))


def seen(trace: Trace, capacity: int | None = None, done: Replay | None = None) -> Answer:
    """Causes and holders straight from the recording; `done`: what is known instead where it does not tell what was held."""
    m = replayed(trace, done) if done else moment(trace)
    limit = m.limit if m.limit < ENDLESS else capacity or ENDLESS
    whole = max(capacity, limit) if capacity and limit < ENDLESS else limit
    steps = growth.steps(trace)
    leaks = growth.leaks(trace, m.event if m.failed else trace.events, steps)
    live = live_bytes(trace, block_sizes(trace))
    causes = why.causes(m, leaks, limit, whole, str(trace.meta.get("alloc_conf") or ""), int(live.max(initial=0)))
    return Answer(
        causes=causes, verdict=verdict.verdict(m, causes, limit), moment=m, limit=limit, device=whole,
        holders=holders.holders(trace, m.event), leaks=leaks, steps=steps, end=int(live[-1]) if len(live) else 0,
        name=trace.name,
    )  # fmt: skip


def with_others(found: Answer, traces: dict[int, Trace], chosen: int) -> Answer:
    """Other devices of the snapshot: a request that failed there and not here is the cause."""
    if found.moment is None or found.moment.failed:
        return found
    for number, trace in traces.items():
        other = moment(trace) if number != chosen else None
        if other and other.failed:
            found.causes.append(Cause("other_device", other.size, f"device {number} ran out of memory, not device {chosen}"))
    return found
