"""All ranks of a program on the GPUs of a machine, on one clock."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from gpusim.engine.run.coupled import Coupled
from gpusim.engine.run.paces import Pace, advance
from gpusim.engine.run.simulate import prepared
from gpusim.machine.profile import Profile
from gpusim.machine.tiers import DEFAULT
from gpusim.machine.topology.connections import Connections, Meeting
from gpusim.machine.topology.lenders import Below, below
from gpusim.machine.topology.sharing import SharedLinks, shared
from gpusim.machine.topology.topology import Topology
from gpusim.machine.topology.transfers import LinkFlow
from gpusim.programs.ranks.matching import Matched, Members, matched
from gpusim.programs.ranks.order import check_order
from gpusim.results.result import Result
from gpusim.trace.exchanges import RECEIVE, SEND
from gpusim.trace.trace import Trace
from gpusim.trace.workload import Workload

FlowOf = Callable[[Any, int, Sequence[str]], LinkFlow]
"""(kind, bytes, GPUs of the group) -> what flows; of a send the sender, then the receiver"""


def simulate_ranks(
    works: Sequence[Workload], profiles: Sequence[Profile], machine: Topology, gpus: Sequence[str], members: Members,
    flow_of: FlowOf, paces: Mapping[int, Pace] | None = None, beside: Sequence[LinkFlow] = (), **choices: Any,
) -> list[Result]:  # fmt: skip
    """Replay the program of each rank on its GPU; what they exchange flows over the machine's links.

    works     the program of each rank, with the times of its kernels there; equal ranks may have one object
    profiles  the GPU of each rank, with its part of the host's memory
    others    as in `connections`
    paces     of ranks whose kernels take longer or shorter from some time on
    beside    bytes of others on the machine's links
    choices   policies, memory, seed and log, as `simulate.prepared` takes them, the same for all ranks

    Raises GpusimError for ranks that wait for each other for ever; TraceError where their exchanges do not match.
    """
    lent = below(machine, gpus, profiles, str(choices.get("tiers", DEFAULT)))
    runs = [
        prepared(work.trace, profile, work=work, below=lent.tiers[p] if lent else (), **choices)
        for p, (work, profile) in enumerate(zip(works, profiles, strict=True))
    ]
    between = connections([run.planned.work.trace for run in runs], machine, gpus, members, flow_of, lent)
    between = with_others(between, beside, shared(machine, gpus))
    of_ranks = paces or {}
    for rank in of_ranks:
        runs[rank].simulation.own_durations()
    coupled = Coupled([run.simulation for run in runs], between)
    advance(coupled, runs, of_ranks)
    return [run.result() for run in runs]


def connections(
    programs: Sequence[Trace], machine: Topology, gpus: Sequence[str], members: Members, flow_of: FlowOf,
    lent: Below | None = None,
) -> Connections:
    """What lies between the ranks of a program.

    gpus      of each rank, by name
    members   (rank, group) -> ranks of the group, as `programs.ranks.layout.RankLayout.members`
    lent      what they lend each other

    Raises TraceError where the exchanges of the ranks do not match, or where ranks wait for each other for ever.
    """
    links = shared(machine, gpus)
    found = matched(programs, members)
    check_order(programs, found)
    meetings = [_meeting(one, gpus, links, flow_of) for one in found]
    if lent is None:
        return Connections(links.rates, links.beyond, meetings)
    return Connections(links.rates, lent.beyond, meetings, lent.tiers, lent.lenders)


def with_others(between: Connections, beside: Sequence[LinkFlow], links: SharedLinks) -> Connections:
    """The same with bytes of others that flow beside the programs."""
    others = [meeting("others", round(flow.size), (), flow, links) for flow in beside]
    return replace(between, meetings=[*between.meetings, *others])


def _meeting(one: Matched, gpus: Sequence[str], links: SharedLinks, flow_of: FlowOf) -> Meeting:
    flow = flow_of(one.kind, one.size, [gpus[rank] for rank in one.ranks])
    members = tuple((rank, operator) for rank, operator in zip(one.ranks, one.operators, strict=True) if operator >= 0)
    return meeting(one.kind, one.size, members, flow, links)


def meeting(kind: str, size: int, members: tuple[tuple[int, int], ...], flow: LinkFlow, links: SharedLinks) -> Meeting:
    """Of what flows when these (rank, operator) meet.

    Sends and receives take no multiprocessors: programs issue them when nothing else is left to do, and wait for them at once,
    while here a receive may be issued long before and would hold them until then.
    """
    blocks = 0 if kind in (SEND, RECEIVE) else flow.blocks
    name = f"{kind} of {size} bytes"
    return Meeting(members, round(flow.latency), flow.size, flow.rate, links.route(flow.links), name, blocks)
