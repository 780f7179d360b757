"""The OOM doctor: why a program ran out of memory, what holds it, and what would help."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from gpusim.base.errors import TraceError
from gpusim.base.units import show_bytes
from gpusim.policies.trials.allocator_replay import ENDLESS, AllocatorReplay
from gpusim.studies.fragmentation import candidates, growth, holders, inputs, verdict
from gpusim.studies.fragmentation import causes as why
from gpusim.studies.fragmentation.answer import Cause, OomAnswer
from gpusim.studies.fragmentation.baseline import Baseline, SettingOutcome, baseline, under
from gpusim.studies.fragmentation.moment import block_sizes, has_segments, held_bytes, holes, live_bytes, moment, replayed
from gpusim.studies.fragmentation.programs import programs
from gpusim.studies.fragmentation.recorded import capacity_of
from gpusim.studies.fragmentation.remedies import rank, settings
from gpusim.studies.fragmentation.waste import wasted
from gpusim.trace.trace import OOM, Trace


def examine(path_or_trace: str | Path | Trace, *, capacity: int | None = None, device: int | None = None) -> OomAnswer:
    """The answer for one program on one device.

    capacity  bytes that the allocator could hold were it alone on the device; None: as far as the recording tells
    device    which GPU of a snapshot of several; None: the one where a request failed, else the one that holds most
    """
    if isinstance(path_or_trace, Trace):
        return examined(path_or_trace, capacity)
    traces = inputs.open_all(str(path_or_trace))
    chosen = inputs.choose(traces, device)
    return with_others(examined(traces[chosen], capacity), traces, chosen)


def examined(trace: Trace, capacity: int | None = None) -> OomAnswer:
    """The answer for one trace, with the settings of its own allocator as candidates."""
    if trace.meta.get("incomplete"):
        reason = f"the snapshot does not tell all: {trace.meta['incomplete']}"
        return OomAnswer(name=trace.name, verdict=f"No verdict: {reason}.", refusal=reason)
    base = compared_with(trace, capacity)
    tried = [under(base, c) for c in candidates.advisable(trace) if c != base.own] if base.exact else []
    return answer(trace, capacity, base, tried)


def compared_with(trace: Trace, capacity: int | None) -> Baseline:
    """The program as it ran, within what the recording says that the device had, else within `capacity`."""
    if not has_segments(trace):
        return baseline(trace, capacity or ENDLESS)
    if capacity_of(trace) >= ENDLESS:
        return baseline(trace, capacity)
    most = int(held_bytes(trace).max())
    if capacity and capacity < most:
        said = f"the program held {show_bytes(most)}, more than a capacity of {show_bytes(capacity)}"
        raise TraceError(said, hint="give all that the device has, or leave it out")
    return baseline(trace)


def answer(trace: Trace, capacity: int | None, base: Baseline, tried: Sequence[SettingOutcome]) -> OomAnswer:
    """Causes and holders as recorded, remedies from what was tried over the program's own replay."""
    failed = bool((trace.kind == OOM).any())
    told = (has_segments(trace) and (failed or base.ran.high.fits)) or (failed and base.ran.high.fits)
    found = seen(trace, capacity, None if told else base.ran.high)
    if not base.exact:
        return replace(found, refusal=base.reason)
    assert found.moment is not None
    if not found.moment.failed:
        found.causes.extend(wasted(base, found.moment, least(found)))
        found = replace(found, verdict=verdict.verdict(found.moment, found.causes, found.limit))
    return replace(found, advice=rank(base, [*settings(base, tried), *programs(base, found)], found.device))


def least(found: OomAnswer) -> float:
    """Bytes from which on something is worth a word: a share of the device, or of what is held where it is not known."""
    m = found.moment
    assert m is not None
    return why.NOTICED * (found.device if found.device < ENDLESS else max(m.held, m.live))


def seen(trace: Trace, capacity: int | None = None, done: AllocatorReplay | None = None) -> OomAnswer:
    """Causes and holders straight from the recording; `done`: what is known instead where it does not tell what was held."""
    m = replayed(trace, done) if done else moment(trace)
    limit = m.limit if m.limit < ENDLESS else capacity or (capacity_of(trace) if has_segments(trace) else ENDLESS)
    steps = growth.steps(trace)
    leaks = growth.leaks(trace, m.event if m.failed else trace.events, steps)
    live = live_bytes(trace, block_sizes(trace))
    found = OomAnswer(
        name=trace.name, moment=m, limit=limit, device=max(capacity, limit) if capacity and limit < ENDLESS else limit,
        holders=holders.holders(trace, m.event), leaks=leaks, steps=steps, end=int(live[-1]) if len(live) else 0,
    )  # fmt: skip
    causes = why.of_failure(m, limit, found.device, str(trace.meta.get("alloc_conf") or "")) if m.failed else []
    causes += why.leaked(leaks, least(found))
    return replace(found, causes=causes, verdict=verdict.verdict(m, causes, limit))


def with_others(found: OomAnswer, traces: dict[int, Trace], chosen: int) -> OomAnswer:
    """What the snapshot's other devices add: room for the request that failed, or a request that failed there and not here."""
    m = found.moment
    others = {number: trace for number, trace in traces.items() if number != chosen}
    if m is None or not others:
        return found
    causes = []
    if m.failed and found.device < ENDLESS:
        outside = min(why.normal(found.device), found.device - found.limit)  # as here, but for what is foreign
        room = {number: _room(trace, found.device, outside) for number, trace in others.items()}
        roomy = [number for number, size in room.items() if size >= why.segment(m.size)]
        if roomy:
            sentence = f"{_devices(roomy)} could serve the request, if as large as device {chosen}"
            causes.append(Cause("other_device", max(room.values()), sentence))
    elif not m.failed:
        failures = {number: moment(trace) for number, trace in others.items() if (trace.kind == OOM).any()}
        if failures:
            sentence = f"{_devices(list(failures))} ran out of memory, not device {chosen}"
            causes.append(Cause("other_device", max(other.size for other in failures.values()), sentence))
    causes = [*found.causes, *causes]
    return replace(found, causes=causes, verdict=verdict.verdict(m, causes, found.limit))


def _room(trace: Trace, device: int, outside: int) -> int:
    """Bytes in one piece that the device could give at the recording's end, the allocator's cached segments given back, or that
    the allocator has in a free block."""
    free = holes(trace, trace.events, block_sizes(trace))
    left = device - outside - int(held_bytes(trace)[-1]) + int(free.bytes[free.whole & ~free.private].sum())
    return max(left, int(free.bytes.max(initial=0)))


def _devices(numbers: Sequence[int]) -> str:
    return f"device{'s' if len(numbers) > 1 else ''} {' and '.join(map(str, numbers))}"
