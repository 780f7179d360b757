"""Whole runs of another machine, program or physics, said to be of this one; see `fault_tools`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from fault_tools import KINDS, Case, Fault, Planter, activities_of, kind, pick, quotients

from gpusim.machine.profile import Profile, changed
from gpusim.machine.sharing import WORDS
from gpusim.trace import trace as tr
from gpusim.trace.build import make_trace
from gpusim.trace.trace import Trace


def _instead(case: Case, trace: Trace, profile: Profile, **choices: Any) -> Fault | None:
    """What another run came to, under the name of this one; None where nothing in it happens at another time."""
    if case.again is None or case.result.program is not None:
        return None
    other, mine = case.again(trace, profile, **choices), case.result
    if not other.finished or other.log is None:
        return None
    spans = [{(a.of, a.what, a.start, a.end): a for a in activities_of(of, case.trace)} for of in (mine.log, other.log)]
    moved = [a for there, of in (spans, spans[::-1]) for key, a in there.items() if key not in of]
    if not moved:
        return None
    own = {n: v for n, v in mine.metrics.items() if n not in other.metrics or n.startswith("kernel_")}
    metrics = quotients({**other.metrics, **own}, mine, len(case.computing))
    claimed = replace(mine, log=other.log, metrics=metrics, timeline=other.timeline)
    return Fault("", claimed, set().union(*(a.names for a in moved)), {"the host"})


# Numbers of the machine, and by what they are multiplied.
NUMBERS = {
    "link.latency_queued": (0.5, 0.9, 1.1), "link.h2d": (0.9, 0.99), "link.d2h": (0.9, 0.99), "launch.gap": (0.0, 0.9, 2.0),
    "launch.submit": (0.0, 0.5), "launch.eager": (0.0, 0.5), "copy_engines.h2d": (2,), "copy_engines.d2h": (2,),
    "allocation.cached_alloc": (0.0, 0.5), "allocation.malloc": (0.5,), "link.latency_synchronised": (0.5,),
    "host.bandwidth": (2.0, 0.5), "nvme.read": (1.1,), "nvme.write": (1.1,), "nvme.latency": (0.5,),
}  # fmt: skip


def _on_another_machine(path: str) -> Planter:
    def planted(case: Case, rng: Any) -> Fault | None:
        part, _, name = path.partition(".")
        value = getattr(getattr(case.profile, part), name).value
        return _instead(case, case.source, changed(case.profile, path, value * rng.choice(NUMBERS[path])))

    return planted


KINDS |= {f"another {path}": _on_another_machine(path) for path in NUMBERS}


def _sharing_less(word: str) -> Planter:
    def planted(case: Case, rng: Any) -> Fault | None:
        words = str(case.result.spec.get("share", "none")).split(", ")
        rest = ", ".join(w for w in words if w != word) or "none"
        return _instead(case, case.source, case.profile, share=rest) if word in words else None

    return planted


KINDS |= {f"{word} not shared": _sharing_less(word) for word in WORDS}


@kind
def shared_though_said_not(case: Case, rng: Any) -> Fault | None:
    alone = case.result.spec.get("share", "none") == "none"
    return _instead(case, case.source, case.profile, share=", ".join(WORDS)) if alone else None


def _edited(trace: Trace, **columns: Any) -> Trace:
    tables = {name: getattr(trace, name) for name in tr.NAME_TABLES}
    return make_trace(trace.name, {name: getattr(trace, name) for name in tr.COLUMNS} | columns, tables, trace.meta)


@kind
def another_recorded_time(case: Case, rng: Any) -> Fault | None:
    at, duration = pick(rng, np.flatnonzero(case.source.duration > 1000).tolist()), case.source.duration.copy()
    if at is None:
        return None
    duration[at] = int(duration[at] * rng.choice([0.5, 0.9, 0.99, 1.01]))
    return _instead(case, _edited(case.source, duration=duration), case.profile)


@kind
def fewer_bytes_over_a_link(case: Case, rng: Any) -> Fault | None:
    t, size = case.source, case.source.read_bytes.copy()
    at = pick(rng, np.flatnonzero(np.isin(t.activity, tr.MOVES) & (t.duration < 0) & (size > 4096)).tolist())
    if at is None:
        return None
    size[at] = size[at] * 9 // 10
    return _instead(case, _edited(t, read_bytes=size), case.profile)


def _without_event(*events: int) -> Planter:
    """A program in which one of these events does not happen; the first of a few that makes a difference."""

    def planted(case: Case, rng: Any) -> Fault | None:
        at = np.flatnonzero(np.isin(case.source.kind, events))
        for place in rng.permutation(at)[:5].tolist():
            kinds, args = case.source.kind.copy(), case.source.arg.copy()
            kinds[place], args[place] = tr.SNAPSHOT, -1
            if found := _instead(case, _edited(case.source, kind=kinds, arg=args), case.profile):
                return found
        return None

    return planted


KINDS["synchronisation left out"] = _without_event(tr.SYNC)
KINDS["wait for an event left out"] = _without_event(tr.WAIT, tr.RECORD)


@kind
def priorities_ignored(case: Case, rng: Any) -> Fault | None:
    meta = {key: value for key, value in case.source.meta.items() if key != "stream_priority"}
    return _instead(case, replace(case.source, meta=meta), case.profile) if meta != case.source.meta else None
