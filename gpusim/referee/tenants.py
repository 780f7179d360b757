"""Programs that have one GPU together: each is checked as one alone, but for the multiprocessors and links that they share.

Whose turn it is, or what part of the time each has, is worked out anew from the starts and ends of all logs and the rules that
`machine.tenancy` states.  A kernel may start when its program has any of the time, and ends when what it had of it adds up to
its duration.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from gpusim.machine.kernels.own_times import OwnTimes
from gpusim.machine.profile import Profile
from gpusim.machine.tenancy import SLICES, Tenancy, runlist
from gpusim.machine.topology.sharing import SharedLink
from gpusim.referee import recompute, sms
from gpusim.referee.activities import NEVER
from gpusim.referee.clients import Kernels, TenantPart, as_part, densities
from gpusim.referee.ends import NOTHING, Flow, Moving, Started, compare, flowing, settled
from gpusim.referee.flows import Grants, Moved
from gpusim.referee.numbers import DEVICE_MEMORY
from gpusim.referee.ranks import all_arrived, passing, stopped, unended
from gpusim.referee.report import Findings, Report
from gpusim.results.result import Result
from gpusim.trace.submission import stream_priorities
from gpusim.trace.trace import I64, KERNEL, Trace


def check(
    results: Sequence[Result], traces: Sequence[Trace], profiles: Sequence[Profile], tenancy: Tenancy | None,
    own: OwnTimes | None = None, *, one_link: bool = True,
) -> list[Report]:  # fmt: skip
    """Recompute what programs on one GPU left behind, a report each; all are unchecked (ok is None) without a log of each.

    traces, profiles  that they ran, as `results`
    tenancy   how they shared the GPU; None: each had a slice of its own, or a GPU
    one_link  they shared the link to the host
    """
    if any(result.log is None for result in results):
        return [Report(ok=None) for _ in results]
    found = [Findings() for _ in results]
    runs = followed(results, traces, profiles, own, found)
    if runs:
        kernels = [_kernels(run, _stop(result)) for run, result in zip(runs, results, strict=True)]
        if tenancy is None:
            parts = [as_part([(-1, 1.0)]) for _ in runs]
        else:
            parts = _turns(kernels, tenancy) if tenancy.way == SLICES else densities(kernels, tenancy)
        routes = [_own_links(p, run, tenancy, one_link) for p, run in enumerate(runs)]
        settle(results, runs, moving(runs, parts, routes, results, found), routes, found)
    return [said.report() for said in found]


def followed(
    results: Sequence[Result], traces: Sequence[Trace], profiles: Sequence[Profile], own: OwnTimes | None,
    found: Sequence[Findings],
) -> list[Started]:  # fmt: skip
    """What each program started, all but its turns checked; none where one of them cannot be followed."""
    runs = list[Started]()
    for result, trace, profile, said in zip(results, traces, profiles, found, strict=True):
        recompute(result, trace, profile, own, said, judge=lambda run, _: runs.append(run), beside=True)
    if len(runs) == len(results):
        return runs
    for said in found:
        if not said.violations:
            what = "when it ends follows from all programs, of which another is wrong"
            said.say(-1, what, "programs that can be followed")
    return []


Routes = Sequence[Mapping[SharedLink, tuple[SharedLink, ...]]]


def moving(
    runs: Sequence[Started], parts: Sequence[TenantPart], routes: Routes, results: Sequence[Result], found: Sequence[Findings]
) -> list[Moving]:
    """What flows of each program, whose kernels have these parts of the time, on its links and until it stops."""
    each = zip(runs, parts, routes, results, found, strict=True)
    return [passing(_moving(run, part, said), of, _stop(one)) for run, part, of, one, said in each]


def settle(
    results: Sequence[Result], runs: Sequence[Started], each: Sequence[Moving], routes: Routes, found: Sequence[Findings],
    further: Sequence[Flow] = (),
) -> Moved:  # fmt: skip
    """Every end of the logs against the one that follows; of what flows further beside the programs, when it has arrived."""
    every = [*((one.flows, one.grants) for one in each), (list(further), NOTHING)]
    *moved, beyond = all_arrived(every, links_of(runs, routes))
    for run, one, its, result, said in zip(runs, each, moved, results, found, strict=True):
        due = settled(one, its) if one.flows else one.own
        compare(run, due, said)
        unended(run, due.end, _stop(result), said)
    return beyond


def links_of(runs: Sequence[Started], routes: Routes) -> dict[SharedLink, float]:
    """Rates of all links that the programs' own stand for, bytes/ns."""
    return {link: run.n.links[str(name)] for run, of in zip(runs, routes, strict=True) for name, (link, *_) in of.items()}


def _stop(result: Result) -> int:
    return NEVER if result.finished else stopped(result)


def _own_links(p: int, run: Started, tenancy: Tenancy | None, one_link: bool) -> dict[SharedLink, tuple[SharedLink]]:
    """Of each link of the p-th program which it is: those of one device are the same for all, a slice has its own memory."""
    shared = tenancy is not None or one_link
    return {
        name: (name,) if shared and (tenancy is not None or name != DEVICE_MEMORY) else ((p, name),) for name in run.n.links
    }


def _kernels(run: Started, stop: int) -> Kernels:
    """Those of a run, which all end where it stops."""
    acts = run.acts
    is_kernel = np.append(run.trace.activity == KERNEL, False)[acts.op] & (acts.start < NEVER)
    rows = np.flatnonzero(is_kernel)
    return Kernels(
        np.minimum(run.ready.bare[rows], acts.start[rows]), acts.start[rows], np.minimum(acts.end[rows], stop),
        run.n.needs.sms[0][acts.op[rows]].astype(np.int64), run.n.needs.sms[1][acts.op[rows]].astype(np.int64),
        stream_priorities(run.trace)[acts.queue[rows]],
        run.n.needs.processors, run.n.duration[acts.op[rows]] * (run.n.needs.sms[2][acts.op[rows]] / 1e6),
    )  # fmt: skip


def _turns(each: Sequence[Kernels], tenancy: Tenancy) -> list[TenantPart]:
    """Time slices: one program has all of the time, or none while the multiprocessors pass on."""
    order = runlist([tenant.level for tenant in tenancy.tenants])
    moments = np.unique(np.concatenate([np.concatenate([k.ready, k.start, k.end]) for k in each])).tolist()
    found: list[list[tuple[int, float]]] = [[(-1, 0.0)] for _ in each]
    place, over, passing_on, i, now = -1, NEVER, False, 0, 0

    ready, end = ([np.sort(column) for column in columns] for columns in ((k.ready for k in each), (k.end for k in each)))

    def busy(p: int) -> bool:
        return bool(np.searchsorted(ready[p], now, side="right") > np.searchsorted(end[p], now, side="right"))

    def held(p: int) -> int:
        k = each[p]
        return int(min(k.limit, k.wants[(k.start <= now) & (now < k.end)].sum()))

    while i < len(moments) or over < NEVER:
        now = min(moments[i] if i < len(moments) else NEVER, over)
        i += i < len(moments) and moments[i] == now
        if passing_on:
            if now < over:
                continue
            passing_on, over = False, now + tenancy.tenants[order[place]].slice
            found[order[place]].append((now, 1.0))
            continue
        before = order[place] if place >= 0 else -1
        if before >= 0 and now < over < NEVER and busy(before):
            continue
        coming = [(place + step) % len(order) for step in range(1, len(order) + 1)]
        place_now = next((at for at in coming if busy(order[at])), -1)
        if place_now < 0:
            over = NEVER
            continue
        place, to = place_now, order[place_now]
        if before in (-1, to):
            over = now + tenancy.tenants[to].slice
            found[to].append((now, 1.0))
            continue
        cost = round(tenancy.switch.fixed + tenancy.switch.of_a_processor * (held(before) + held(to)))
        found[before].append((now, 0.0))
        passing_on, over = cost > 0, now + (cost or tenancy.tenants[to].slice)
        if not cost:
            found[to].append((now, 1.0))
    return [as_part(changes) for changes in found]


def _moving(run: Started, part: TenantPart, found: Findings) -> Moving:
    """What flows for a run, whose kernels start when it has a part of the time and have that much of it."""
    ready = _when_on(run.ready.ready, run.acts.start, part)
    grants = sms.check(run.acts, run.trace, ready, run.ready.time, run.n, found)
    return flowing(run._replace(grants=_in_part(grants, run.acts.end, part)))


def _when_on(ready: I64, start: I64, part: TenantPart) -> I64:
    """When those that are ready find their program with any of the time; at the tick of a turn's end both are right."""
    at = np.searchsorted(part.time, ready, side="right") - 1
    on = np.append(np.where(part.part > 0, np.arange(len(part.part)), NEVER), NEVER)
    following = np.minimum.accumulate(on[::-1])[::-1]
    until = following[at]
    times = np.append(part.time, NEVER)
    found = np.where(ready >= NEVER, NEVER, np.maximum(ready, times[np.minimum(until, len(times) - 1)]))
    at_its_end = (start == ready) & (part.time[at] == ready) & (part.part[np.maximum(at - 1, 0)] > 0)
    return np.where(at_its_end, ready, found)


def _in_part(grants: Grants, end: I64, part: TenantPart) -> Grants:
    """What activities have of their multiprocessors, of which their program has a part of the time."""
    time, flow, share = [], [], []
    on = part.time[part.part > 0]
    for which in np.unique(grants.flow).tolist():
        own = grants.flow == which
        at, has = grants.time[own], grants.share[own]
        changes = part.time[(part.time > at[0]) & (part.time < end[which])]
        later = on[on >= end[which]][:1]  # one that has not done its work by then goes on when there is time for it
        moments = np.unique(np.concatenate([at, changes, later]))
        time.append(moments)
        flow.append(np.full(len(moments), which))
        of_kernel, of_program = (np.searchsorted(t, moments, side="right") - 1 for t in (at, part.time))
        share.append(has[of_kernel] * part.part[of_program])
    if not time:
        return grants
    all_times = np.concatenate(time)
    order = np.argsort(all_times, kind="stable")
    return Grants(all_times[order], np.concatenate(flow)[order], np.concatenate(share)[order])
