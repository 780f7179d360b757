"""All ranks of a program on the GPUs of a machine, on one clock."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from gpusim.base.errors import GpusimError
from gpusim.engine import state
from gpusim.engine.run.coupled import Coupled
from gpusim.engine.run.simulate import Prepared, prepared
from gpusim.machine.topology.connections import Connections, Meeting
from gpusim.machine.topology.sharing import SharedLinks, shared
from gpusim.machine.topology.topology import Topology
from gpusim.machine.topology.transfers import LinkFlow
from gpusim.programs.ranks.matching import Matched, Members, matched
from gpusim.results.result import Result
from gpusim.trace.trace import Trace

FlowOf = Callable[[str, int, Sequence[str]], LinkFlow]
"""(kind, bytes, GPUs of the group) -> what flows; of a send the sender, then the receiver"""


def simulate_ranks(
    programs: Sequence[Trace], machine: Topology, gpus: Sequence[str], members: Members, flow_of: FlowOf, **choices: Any
) -> list[Result]:
    """Replay the program of each rank on its GPU; what they exchange flows over the machine's links.

    programs  of each rank; equal ranks may have one object
    gpus      of each rank, by name
    members   (rank, group) -> ranks of the group, as `programs.ranks.layout.Layout.members`
    choices   policies, memory, seed and log, as `simulate.prepared` takes them, the same for all ranks

    Raises GpusimError for ranks that wait for each other for ever; TraceError where their exchanges do not match.
    """
    runs = _prepared(programs, machine, gpus, choices)
    links = shared(machine, gpus)
    found = matched([run.planned.work.trace for run in runs], members)
    between = Connections(links.rates, links.beyond, [_meeting(one, gpus, links, flow_of) for one in found])
    coupled = Coupled([run.simulation for run in runs], between)
    coupled.advance(state.NEVER)
    return [run.result() for run in runs]


def _prepared(programs: Sequence[Trace], machine: Topology, gpus: Sequence[str], choices: Any) -> list[Prepared]:
    """Equal programs on equal GPUs share their workload."""
    if len(programs) != len(gpus):
        raise GpusimError(f"there are {len(programs)} programs for {len(gpus)} GPUs")
    works: dict[tuple[int, str], Any] = {}
    runs = []
    for program, gpu in zip(programs, gpus, strict=True):
        profile = machine.profile(gpu)
        key = (id(program), profile.name)
        runs.append(prepared(program, profile, work=works.get(key), **choices))
        works[key] = runs[-1].work
    return runs


def _meeting(one: Matched, gpus: Sequence[str], links: SharedLinks, flow_of: FlowOf) -> Meeting:
    flow = flow_of(one.kind, one.size, [gpus[rank] for rank in one.ranks])
    members = tuple(zip(one.ranks, one.operators, strict=True))
    return Meeting(members, round(flow.latency), flow.size, flow.rate, links.route(flow.links))
