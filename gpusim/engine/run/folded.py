"""One rank of each class of equal ranks: what all others do is what these do, at the same time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import isclose
from typing import Any

import numpy as np

from gpusim.base.errors import GpusimError
from gpusim.engine import state
from gpusim.engine.run.coupled import Coupled
from gpusim.engine.run.ranks import FlowOf, meeting, with_others
from gpusim.engine.run.simulate import prepared
from gpusim.machine.profile import Profile
from gpusim.machine.topology import transfers
from gpusim.machine.topology.connections import Connections, Meeting
from gpusim.machine.topology.sharing import SharedLinks, shared
from gpusim.machine.topology.topology import Topology
from gpusim.machine.topology.transfers import LinkFlow
from gpusim.programs.ranks.layout import RankLayout
from gpusim.programs.ranks.matching import matched
from gpusim.results.result import Result
from gpusim.trace.exchanges import RECEIVE, SEND, parse_exchanges
from gpusim.trace.workload import Workload


def simulate_folded(
    works: Sequence[Workload], profiles: Sequence[Profile], machine: Topology, gpus: Sequence[str], layout: RankLayout,
    flow_of: FlowOf, beside: Sequence[LinkFlow] = (), **choices: Any,
) -> list[Result]:  # fmt: skip
    """Replay the program of the first rank of each pipeline stage, while all ranks of the stage do the same.

    works     the program of each stage, with the times of its kernels; so `profiles`
    gpus      of all ranks, by name
    flow_of, beside  as of `engine.run.ranks.simulate_ranks`

    The ranks of a stage have one program on GPUs of one profile, so that none waits for another of them, and groups that work
    in the same way on other GPUs do so at the same time: the flow of a collective has the links of all of them.

    Raises GpusimError where the links of such groups differ.
    """
    first = [layout.rank(0, 0, stage) for stage in range(layout.pipeline)]
    runs = [prepared(work.trace, profile, work=work, **choices) for work, profile in zip(works, profiles, strict=True)]
    links = shared(machine, [gpus[rank] for rank in first])
    fold = _Fold(layout, gpus, links, flow_of, _near(machine, [gpus[rank] for rank in first]), transfers.rates(machine))
    meetings = [meeting for p, run in enumerate(runs) for meeting in fold.collectives(p, run.planned.work)]
    meetings += fold.sends([run.planned.work for run in runs])
    between = with_others(Connections(links.rates, links.beyond, meetings), beside, links)
    coupled = Coupled([run.simulation for run in runs], between)
    coupled.advance(state.NEVER)
    return [run.result() for run in runs]


class _Fold:
    """The flows of groups that stand for all like them, each made once."""

    def __init__(
        self, layout: RankLayout, gpus: Sequence[str], links: SharedLinks, flow_of: FlowOf, near: frozenset[str],
        rates: Mapping[str, float],
    ) -> None:  # fmt: skip
        self.layout, self.gpus, self.links, self.flow_of = layout, gpus, links, flow_of
        self.near, self.rates = near, rates
        self._found: dict[tuple[int, str], tuple[tuple[int, ...], ...]] = {}
        self._known: dict[tuple[str, int, tuple[tuple[int, ...], ...]], LinkFlow] = {}

    def collectives(self, stage: int, work: Workload) -> Iterator[Meeting]:
        """Of one stage's program, which is the only one that comes to them."""
        program = work.trace
        said = [parse_exchanges(text)[0] for text in program.exchanges]  # batches are of sends and receives
        for operator in np.flatnonzero(program.exchange >= 0).tolist():
            one = said[int(program.exchange[operator])]
            if one.kind not in (SEND, RECEIVE):
                groups = self._groups(stage, one.group)
                if len(groups[0]) > 1:
                    yield self._meeting(((stage, operator),), one.kind, one.size, groups)

    def sends(self, works: Sequence[Workload]) -> Iterator[Meeting]:
        """Between the stages."""
        programs = [_only_sends(work) for work in works]
        stages = RankLayout(pipeline=self.layout.pipeline)
        for one in matched(programs, stages.members):
            a, b = one.ranks
            pairs = tuple(
                (self.layout.rank(t, d, a), self.layout.rank(t, d, b))
                for d in range(self.layout.data) for t in range(self.layout.tensor)
            )  # fmt: skip
            yield self._meeting(tuple(zip(one.ranks, one.operators, strict=True)), one.kind, one.size, pairs)

    def _groups(self, stage: int, name: str) -> tuple[tuple[int, ...], ...]:
        """All groups of this name of a stage, that of its first rank first."""
        if (stage, name) not in self._found:
            ranks = (self.layout.rank(t, d, stage) for d in range(self.layout.data) for t in range(self.layout.tensor))
            groups: dict[tuple[int, ...], None] = {}
            known: set[int] = set()
            for rank in ranks:
                if rank not in known:
                    groups[self.layout.members(rank, name)] = None
                    known.update(self.layout.members(rank, name))
            self._found[stage, name] = tuple(groups)
        return self._found[stage, name]

    def _meeting(
        self, members: tuple[tuple[int, int], ...], kind: str, size: int, groups: tuple[tuple[int, ...], ...]
    ) -> Meeting:
        key = kind, size, groups
        if key not in self._known:
            self._known[key] = self._flow(kind, size, groups)
        return meeting(kind, size, members, self._known[key], self.links)

    def _flow(self, kind: str, size: int, groups: tuple[tuple[int, ...], ...]) -> LinkFlow:
        """The flow of the first group, over the links that all of them pass in this time.

        Links of hosts without a simulated rank are left out: what passes them passes the same link of one that has.
        """
        flows = [self.flow_of(kind, size, [self.gpus[rank] for rank in group]) for group in groups]
        self._alike(kind, size, groups, flows)
        slowest = min(flows, key=lambda flow: flow.rate)
        passed: Counter[str] = Counter()
        for flow in flows:
            passed.update(name for name in flow.links if name in self.near)
        return slowest._replace(links=tuple(passed.elements()))


    def _alike(self, kind: str, size: int, groups: Sequence[tuple[int, ...]], flows: Sequence[LinkFlow]) -> None:
        """Raises GpusimError where one of the groups, with all others beside it, has other links than the first."""
        load = Counter(name for flow in flows for name in flow.links)
        rates = [min([flow.rate, *(self.rates[name] / load[name] for name in flow.links)]) for flow in flows]
        times = [flow.latency + flow.size / rate for flow, rate in zip(flows, rates, strict=True)]
        for group, time in zip(groups, times, strict=True):
            if not isclose(time, times[0], rel_tol=ALIKE):
                others = f"ranks {_named(group)} {time:.0f}"
                raise unlike(f"{kind} of {size} bytes takes ranks {_named(groups[0])} {times[0]:.0f} ns and {others}")


ALIKE = 1e-3
"""Share by which times of groups that stand for each other may differ."""


def unlike(why: str) -> GpusimError:
    """Of ranks of which none stands for the others."""
    return GpusimError(f"the ranks cannot be folded: {why}", hint="leave out fold: then all of them are simulated")


def _named(ranks: Sequence[int]) -> str:
    return ",".join(map(str, ranks))


def _near(machine: Topology, gpus: Sequence[str]) -> frozenset[str]:
    """Names of the links that touch the hosts of these GPUs, and of the memories there."""
    hosts = {machine.host[gpu] for gpu in gpus}
    nodes = {name for name in machine.nodes if machine.host.get(name) in hosts}
    touching = [link for link in machine.links.values() if {link.a, link.b} & nodes]
    return frozenset({name for link in touching for name in (link.name, link.pair)} | nodes)


def _only_sends(work: Workload) -> Any:
    """The program without its collectives, to match what its stages send."""
    program = work.trace
    kinds = np.array([parse_exchanges(text)[0].kind in (SEND, RECEIVE) for text in program.exchanges] + [False])
    return replace(program, exchange=np.where(kinds[program.exchange], program.exchange, -1))
