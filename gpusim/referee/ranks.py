"""Runs on the devices of one machine: each is checked as one alone, but for what they share.

When bytes arrive follows from all runs together: what flows passes links of its own device and shared ones beyond, and
operators of several runs that meet move their bytes as one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from gpusim.machine.kernels.own_times import OwnTimes
from gpusim.machine.profile import Profile
from gpusim.machine.topology.connections import Connections
from gpusim.machine.topology.sharing import SharedLink
from gpusim.referee import meetings, recompute
from gpusim.referee.activities import NEVER
from gpusim.referee.ends import NOTHING, ROUNDING, Flow, Moving, Started, arrivals, compare, flowing, settled
from gpusim.referee.flows import Grants, Moved
from gpusim.referee.lenders import check_lenders
from gpusim.referee.loads import check_loads, link_name, passed_by_ranks, passed_in_meetings
from gpusim.referee.meetings import attendance, members_of
from gpusim.referee.report import Findings, Report
from gpusim.results.result import Result
from gpusim.trace.trace import I64, Trace


def check(
    results: Sequence[Result], traces: Sequence[Trace], profiles: Sequence[Profile], between: Connections,
    own: OwnTimes | None = None,
) -> list[Report]:  # fmt: skip
    """Recompute what the ranks of a machine left behind, a report each; all are unchecked (ok is None) without a log of each.
    Where one cannot be followed at all none is right.

    traces    that they ran, profiles of their devices: as `results`, in the order of the ranks
    between   what lies between the devices
    own       the user's own measured times of kernels there
    """
    if any(result.log is None for result in results):
        return [Report(ok=None) for _ in results]
    found, started = [Findings() for _ in results], list[Started]()
    members = members_of(between.meetings)
    programs = [result.program or trace for result, trace in zip(results, traces, strict=True)]
    possible = meetings.possible(members, programs, found)
    for rank, (result, trace, profile) in enumerate(zip(results, traces, profiles, strict=True)):
        met, below = members.of(rank, programs[rank].ops), between.tiers[rank] if between.tiers else ()
        recompute(result, trace, profile, own, found[rank], met, lambda run, _: started.append(run), below)
    machine = _machine(started, between) if possible and len(started) == len(results) else None
    if machine is not None and _known(machine, between, found):
        _together(results, started, machine, between, found)
    else:
        for said in found:
            if not said.violations:
                said.say(-1, "when it ends follows from all ranks, of which another is wrong", "ranks that can be followed")
    return [said.report() for said in found]


class SharedMachine(NamedTuple):
    """Links of the devices and between them, bytes/ns; of each device which of these the bytes on its own links pass."""

    rates: dict[SharedLink, float]
    passed: list[dict[SharedLink, tuple[SharedLink, ...]]]


def _machine(runs: Sequence[Started], between: Connections) -> SharedMachine:
    rates: dict[SharedLink, float] = dict(between.rates.items())
    passed: list[dict[SharedLink, tuple[SharedLink, ...]]] = []
    for rank, run in enumerate(runs):
        rates |= {(rank, name): rate for name, rate in run.n.links.items()}
        beyond = between.beyond[rank] if between.beyond else {}
        passed.append({name: ((rank, name), *beyond.get(name, ())) for name in run.n.links})
    return SharedMachine(rates, passed)


def _known(machine: SharedMachine, between: Connections, found: Sequence[Findings]) -> bool:
    """All links are there that anything is said to pass.  False: look no further."""
    named = {link for routes in machine.passed for route in routes.values() for link in route}
    named |= {link for meeting in between.meetings for link in meeting.route}
    unknown = [link for link in named if link not in machine.rates]
    for link in unknown[:1]:
        found[0].say(-1, f"bytes pass {link_name(link)}", "a link of the machine")
    return not unknown


def _together(
    results: Sequence[Result], runs: Sequence[Started], machine: SharedMachine, between: Connections, found: Sequence[Findings]
) -> None:
    """The ends of all runs, and what follows from them."""
    stop = np.array([NEVER if result.finished else stopped(result) for result in results])
    there = attendance(members_of(between.meetings), between.meetings, runs)
    each = [passing(flowing(run), machine.passed[rank], int(stop[rank])) for rank, run in enumerate(runs)]
    met = meetings.flows(there, between.meetings)
    *moved, arrived = all_arrived([*((one.flows, one.grants) for one in each), (met, NOTHING)], machine.rates)
    for run, one, its, at, said in zip(runs, each, moved, stop.tolist(), found, strict=True):
        due = settled(one, its) if one.flows else one.own
        compare(run, due, said)
        unended(run, due.end, at, said)
    end = np.full(len(between.meetings), NEVER)
    if met:
        end[np.concatenate([part.rows for part in met])] = np.where(arrived.end < 0, NEVER, arrived.end)
    meetings.check(there, end, stop, runs, found)
    meetings.waits(there, stop, results, found)
    check_lenders(results, runs, between, stop, found)
    passed = passed_by_ranks(runs, [one.flows for one in each]) + passed_in_meetings(there, met, runs)
    check_loads(passed, {link: machine.rates[link] for link in {*between.rates, *_of_meetings(between)}}, found)


def stopped(result: Result) -> int:
    """When a run came to its end that did not finish, ns: the time of its last record, or of what stopped it."""
    if "stopped_at" in result.spec:
        return int(result.spec["stopped_at"])
    return int(result.log["t"][-1]) if result.log is not None and len(result.log) else 0


def _of_meetings(between: Connections) -> set[SharedLink]:
    return {link for meeting in between.meetings for link in meeting.route}


def passing(moving: Moving, routes: Mapping[SharedLink, tuple[SharedLink, ...]], stop: int) -> Moving:
    """What flows for a run, on its way through the machine and until the run stops."""
    flows = [part._replace(links=tuple(link for name in part.links for link in routes[name])) for part in moving.flows]
    return moving._replace(flows=flows, grants=_until(moving, stop))


def _until(moving: Moving, stop: int) -> Grants:
    """The grants to the flows of a run, which have nothing any more from the time on at which it stops before its end."""
    if stop == NEVER or not moving.flows:
        return moving.grants
    begin = np.concatenate([part.begin for part in moving.flows])
    every, free = np.arange(len(begin)), begin <= stop
    free[moving.grants.flow] = False
    until = Grants(np.full(len(begin), stop), every, np.zeros(len(begin)))
    return in_time([moving.grants, Grants(begin[free], every[free], np.ones(int(free.sum()))), until])


def in_time(each: Sequence[Grants]) -> Grants:
    """All of them, in the order of time; at one time in the order given."""
    time, flow, share = (np.concatenate(column) for column in zip(*each, strict=True))
    order = np.argsort(time, kind="stable")
    return Grants(time[order], flow[order], share[order])


def all_arrived(each: Sequence[tuple[list[Flow], Grants]], rates: Mapping[SharedLink, float]) -> list[Moved]:
    """When what flows of each has arrived, all beside each other."""
    first = np.cumsum([0, *(sum(len(part.rows) for part in flows) for flows, _ in each)])
    if not first[-1]:
        return [Moved(np.zeros(0, np.int64), np.zeros(0, bool))] * len(each)
    grants = in_time([grants._replace(flow=grants.flow + at) for (_, grants), at in zip(each, first, strict=False)])
    there = arrivals([part for flows, _ in each for part in flows], rates, grants)
    return [Moved(there.end[a:b], there.slowed[a:b]) for a, b in pairwise(first)]


def unended(run: Started, due: I64, stop: int, found: Findings) -> None:
    """What was to end before the run stopped without finishing."""
    acts = run.acts
    for i in np.flatnonzero((acts.start < NEVER) & (acts.end == NEVER) & (due < stop - ROUNDING)).tolist():
        what = f"activity {i} never ends, though the run goes on to {stop} ns"
        found.say(acts.start_record[i], what, f"an end at {due[i]} ns")
