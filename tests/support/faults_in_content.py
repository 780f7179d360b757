"""Faults in what is where, and in numbers beside the log; see `fault_tools`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from fault_tools import KINDS, STALLS, SWAP, Activity, Case, Edit, Fault, Planter, fault, kind, pick, quotients

from gpusim.results import log as lg
from gpusim.trace import trace as tr


def _swaps(case: Case, least: int = 0) -> list[Activity]:
    return [a for a in case.activities if a.what == SWAP and a.size >= least]


# --- what is where ----------------------------------------------------------------------------------------------------------


def _without_its_copy(into_device: bool) -> Planter:
    """A tensor is somewhere else without a copy; the activities behind are numbered anew."""

    def planted(case: Case, rng: Any) -> Fault | None:
        a = pick(rng, [a for a in _swaps(case) if (a.target == 0) == into_device])
        if a is None:
            return None
        edit = Edit(case)
        edit.drop([a.submitted, a.starts, a.ends])
        runs, made = (np.isin(edit.log["kind"], of) for of in ([lg.START, lg.END], [lg.ISSUE, lg.COPY, lg.CANCEL]))
        edit.log["a"] -= runs & (edit.log["a"] > a.number)
        edit.log["addr"] -= made & (edit.log["addr"] > a.number)
        return fault(edit.finish(), a.names, "tensor")

    return planted


KINDS["eviction without its copy"] = _without_its_copy(False)
KINDS["swap in without its copy"] = _without_its_copy(True)


def _of_half_its_bytes(and_time: bool) -> Planter:
    """A swap moves half of its bytes, in its own time or in half of it."""

    def planted(case: Case, rng: Any) -> Fault | None:
        a = pick(rng, [a for a in _swaps(case, least=1024) if not and_time or case.alone(a)])
        if a is None:
            return None
        edit = Edit(case)
        edit.log["bytes"][a.submitted] //= 2
        if and_time:
            edit.shift(a.end, -((a.end - a.start) // 2), a.starts + 1)
        return fault(edit.finish(), a.names | {a.size, a.size // 2})

    return planted


KINDS["swap of half its bytes"] = _of_half_its_bytes(False)
KINDS["swap of half its bytes and time"] = _of_half_its_bytes(True)


@kind
def tensor_of_half_its_bytes(case: Case, rng: Any) -> Fault | None:
    log = case.log
    place = pick(rng, np.flatnonzero((log["kind"] == lg.CREATE) & (log["bytes"] > 1024)).tolist())
    if place is None:
        return None
    unit, size, edit = int(log["a"][place]), int(log["bytes"][place]), Edit(case)
    edit.log["bytes"][np.isin(log["kind"], [lg.CREATE, lg.DESTROY]) & (log["a"] == unit)] //= 2
    return fault(edit.finish(), {unit, size, size // 2}, "requested")


@kind
def swap_with_another_tier(case: Case, rng: Any) -> Fault | None:
    a = pick(rng, _swaps(case)) if len(case.tiers) > 1 else None
    if a is None:
        return None
    edit = Edit(case)
    other = (3 - a.source) << 8 if a.source else 3 - a.target
    edit.log["b"][a.submitted] = (int(case.log["b"][a.submitted]) & ~0xFFFF) | other
    return fault(edit.finish(), a.names, "memory")


def _blocks(case: Case) -> list[tuple[int, int, int, int]]:
    """(tensor, its PLACE, its UNPLACE, bytes) of blocks on the device that are taken, given back and never moved."""
    open_: dict[int, int] = {}
    found = []
    for i, (_, what, unit, memory, _, size) in enumerate(case.log.tolist()):
        if what == lg.PLACE and memory == 0:
            open_[unit] = i
        elif what == lg.UNPLACE and memory == 0 and unit in open_:
            found.append((unit, open_.pop(unit), i, size))
        elif what == lg.MOVE:
            open_.pop(unit, None)
    return [x for x in found if x[3]]


def _block_elsewhere(free: bool) -> Planter:
    """A block has other addresses: those of another, or some that nothing has while it lives."""

    def planted(case: Case, rng: Any) -> Fault | None:
        blocks, addr, top = _blocks(case), case.log["addr"], int(case.result.metrics["reserved_peak_bytes"])
        for unit, since, until, size in [blocks[i] for i in rng.permutation(len(blocks))[:40]]:
            beside = [b for b in blocks if b[2] > since and b[1] < until and b[0] != unit]
            taken = [(int(addr[s]), int(addr[s]) + n) for _, s, _, n in beside]
            own = int(addr[since])
            for at in sorted({own + size, *(stop for _, stop in taken)}) if free else [start for start, _ in taken]:
                clear = all(at + size <= start or at >= stop for start, stop in taken)
                if at != own and at + size <= top and clear == free:
                    edit = Edit(case)
                    edit.log["addr"][[since, until]] = at
                    return fault(edit.finish(), {unit, at, own})
        return None

    return planted


KINDS["block on another"] = _block_elsewhere(False)
KINDS["block on free addresses"] = _block_elsewhere(True)


@kind
def kernel_on_another_stream(case: Case, rng: Any) -> Fault | None:
    a = pick(rng, [a for a in case.activities if a.what == tr.KERNEL]) if len(case.computing) > 1 else None
    if a is None:
        return None
    edit = Edit(case)
    edit.log["b"][[a.submitted, a.starts, a.ends]] = next(q for q in case.computing if q != a.queue)
    return fault(edit.finish(), a.names, "stream")


# --- numbers beside the log -------------------------------------------------------------------------------------------------


@kind
def stall_of_another_cause(case: Case, rng: Any) -> Fault | None:
    metrics = dict(case.result.metrics)
    taken = pick(rng, [n for n in STALLS if metrics.get(n, 0) > 100])
    given = pick(rng, [n for n in STALLS if n in metrics and n != taken])
    if taken is None or given is None:
        return None
    by = max(1, int(metrics[taken] * rng.uniform(0.01, 1)))
    metrics[taken] -= by
    metrics[given] += by
    return Fault("", replace(case.result, metrics=metrics), set(), {taken, given})


_WITH_IT = {  # metrics of which others are sums
    "h2d_bytes": "host_in_bytes", "d2h_bytes": "host_out_bytes", "prefetch_hits": "prefetches", "compute_busy_ns": "sharing_ns",
}  # fmt: skip


_HOLES = ("frag_external", "frag_failures")  # what free blocks were like


def _other_metric(holes: bool) -> Planter:
    """A metric is other than it was, with those that follow from it."""

    def planted(case: Case, rng: Any) -> Fault | None:
        metrics = dict(case.result.metrics)
        names = [n for n in metrics if not n.startswith("stall_") and n != "kernel_default_share" and (n in _HOLES) == holes]
        name = str(pick(rng, names))
        was = metrics[name]
        if isinstance(was, int | np.integer):
            by = max(1, int(was * rng.uniform(0.005, 0.5)))
            for each in {name, _WITH_IT.get(name, name)} & set(metrics):
                metrics[each] += by
            metrics = quotients(metrics, case.result, len(case.computing))
        else:
            metrics[name] = was * 0.9 if was else 0.1
        return Fault("", replace(case.result, metrics=metrics), set(), {name})

    return planted


KINDS["metric edited"] = _other_metric(False)
KINDS["metric of free blocks edited"] = _other_metric(True)


def _other_bound(*names: str) -> Planter:
    def planted(case: Case, rng: Any) -> Fault | None:
        bounds = dict(case.result.bounds)
        name = pick(rng, [n for n in names if bounds.get(n)])
        if name is None:
            return None
        bounds[name] = int(bounds[name] * rng.choice([0.5, 0.9, 0.99]))
        claimed = replace(case.result, bounds=bounds)
        metrics = quotients(dict(case.result.metrics), claimed, len(case.computing))
        return Fault("", replace(claimed, metrics=metrics), set(), {name})

    return planted


KINDS["bound edited"] = _other_bound("bound_swap_in_bytes", "bound_live_bytes", "bound_plan_bytes")
KINDS["bound of another run edited"] = _other_bound("bound_no_limit_ns", "bound_oracle_ns")


@kind
def failure_edited(case: Case, rng: Any) -> Fault | None:
    """What a run without room is said to have asked for, or to have had."""
    failure = dict(case.result.failure or {})
    name = pick(rng, [n for n in ("tensor", "op", "request", "free", "largest", "time_ns") if (failure.get(n) or 0) > 0])
    if name is None:
        return None
    was = failure[name]
    failure[name] = was - 1 if name in ("tensor", "op") else was // 2
    return Fault("", replace(case.result, failure=failure), {was, failure[name]}, {"fail", name})


@kind
def machine_of_the_spec_edited(case: Case, rng: Any) -> Fault | None:
    """The rate of a link, or the slots of a copy engine."""
    spec, metrics = dict(case.result.spec), dict(case.result.metrics)
    if rng.random() < 0.5:
        spec["slots"] = {**spec["slots"], "h2d": spec["slots"]["h2d"] + 1}
        return Fault("", replace(case.result, spec=spec), set(), {"engine"})
    spec["rates"] = {**spec["rates"], "h2d": spec["rates"]["h2d"] * 2}
    metrics["h2d_busy_share"] /= 2
    return Fault("", replace(case.result, spec=spec, metrics=metrics), set(), {"link h2d"})


@kind
def footprint_edited(case: Case, rng: Any) -> Fault | None:
    spec = case.result.spec | {"footprint": int(case.result.spec["footprint"] * 1.1)}
    return Fault("", replace(case.result, spec=spec), set(), {"footprint"})


@kind
def oracle_hidden(case: Case, rng: Any) -> Fault | None:
    """A policy that reads the future is said to be none that does."""
    if not case.result.spec.get("oracles"):
        return None
    return Fault("", replace(case.result, spec=case.result.spec | {"oracles": []}), set(), {"oracle"})


@kind
def timeline_column_scaled(case: Case, rng: Any) -> Fault | None:
    timeline = dict(case.result.timeline)
    name = pick(rng, [n for n, column in timeline.items() if len(column) and column.max() > 100])
    if name is None:
        return None
    timeline[name] = (timeline[name] * 0.95).astype(timeline[name].dtype)
    return Fault("", replace(case.result, timeline=timeline), set(), {name, "timeline"})


@kind
def timeline_row_edited(case: Case, rng: Any) -> Fault | None:
    timeline = dict(case.result.timeline)
    name = pick(rng, [n for n, column in timeline.items() if n.endswith("_bytes") and len(column) > 3 and column.max() > 1024])
    if name is None:
        return None
    column = timeline[name].copy()
    row = int(rng.integers(1, len(column) - 1))
    column[row] += 512
    timeline[name] = column
    return Fault("", replace(case.result, timeline=timeline), set(), {name, "timeline"})


@kind
def prefetch_hit_claimed(case: Case, rng: Any) -> Fault | None:
    metrics = dict(case.result.metrics)
    worse = pick(rng, [n for n in ("prefetch_wasted", "prefetch_late") if metrics.get(n, 0)])
    if worse is None:
        return None
    metrics[worse] -= 1
    metrics["prefetch_hits"] += worse == "prefetch_wasted"
    return Fault("", replace(case.result, metrics=metrics), set(), {"prefetch"})


@kind
def end_of_the_run_earlier(case: Case, rng: Any) -> Fault | None:
    metrics = dict(case.result.metrics)
    metrics["makespan_ns"] = int(metrics["makespan_ns"] * 0.99)
    metrics = quotients(metrics, case.result, len(case.computing))
    return Fault("", replace(case.result, metrics=metrics), set(), {"makespan_ns"})
