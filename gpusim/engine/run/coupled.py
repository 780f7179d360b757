"""Programs on the devices of one machine: they share links, and some of their operators go on together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from gpusim.base.compiled import Placed, address, direct
from gpusim.base.errors import GpusimError
from gpusim.base.tables import filled, table
from gpusim.engine import state
from gpusim.engine.fabric.loop import RUN, run_coupled
from gpusim.engine.fabric.tables import DECIDE, GPU, RENDEZVOUS, Fabric
from gpusim.engine.host.island import run_until
from gpusim.engine.run import lent, seats, tables
from gpusim.engine.run.memory_turns import MemoryTurns
from gpusim.engine.run.side_by_side import SideBySide, guarded
from gpusim.engine.run.simulate import Simulation
from gpusim.engine.state import PROCESSES, Processes
from gpusim.machine.topology.connections import Connections, Meeting
from gpusim.machine.topology.sharing import SharedLink
from gpusim.trace.trace import I64


class Coupled(SideBySide):
    """Several simulations on the devices of one machine, in progress; none has begun."""

    def __init__(
        self, simulations: Sequence[Simulation], between: Connections, memory: MemoryTurns | None = None
    ) -> None:  # fmt: skip
        self.between, self.memory = between, memory
        routes = _share(simulations, between)
        if between.lenders:
            lent.open_accounts(simulations, between)
        meets = _meets([len(simulation.program.duration) for simulation in simulations], between.meetings)
        for simulation, starts, mine in zip(simulations, meets.starts, meets.operators, strict=True):
            simulation.program = _with_meetings(simulation.program, starts, mine)
        for simulation, blocks in zip(simulations, _processors(len(simulations), between.meetings), strict=True):
            simulation.program = tables.with_collectives(
                simulation.program, simulation.island, simulation.work.trace, simulation.shared, blocks
            )
        super().__init__(simulations, lookahead=0)
        rows, coming = self.processes.rows, self.processes.next
        each = [Processes(rows[p : p + 1], coming[p : p + 1], table(1, state.TURN)) for p in range(len(simulations))]
        for one in each:
            one.turn["lookahead"] = state.NEVER
        self._each = [Placed(one, PROCESSES) for one in each]
        self.fabric = _fabric(between.meetings, meets.meetings, routes, [placed.address for placed in self._each])
        if between.tenancy is not None:
            self.fabric = seats.take(self.fabric, simulations, between.tenancy, asks=memory is not None)

    def leave(self, which: int, at: int) -> None:
        """A program is gone at `at` ns, up to which all have run: what it has under way ends with it."""
        self.processes.turn["now"] = at
        self.simulations[which].reason = state.DESERTED
        self.processes.rows["ended"][which] = 1

    def _step(self, until: int) -> tuple[int, int]:
        loop = direct(run_coupled)
        reason, which = guarded(self.simulations, self.processes, lambda: loop(self.fabric, self.processes, until))
        while self.memory is not None and reason == DECIDE:
            self.memory.decide(self.fabric, self.processes, self.simulations)
            reason, which = guarded(self.simulations, self.processes, lambda: loop(self.fabric, self.processes, until))
        if reason == state.REACHED and until == state.NEVER:
            self._strand()
        return reason, which

    def _left(self, which: int) -> None:
        paging = self.simulations[which].paging
        if paging is not None:
            paging.left()
        if self.between.lenders:
            lent.close(self.simulations[which])

    def _strand(self) -> None:
        """Nothing goes on: the programs that are left wait for one that ran out of memory.  Raises GpusimError without one."""
        if self.memory is not None:
            raise GpusimError(self.memory.standstill(self.processes))
        if all(simulation.reason not in (state.OUT_OF_MEMORY, state.HOST_OUT_OF_MEMORY) for simulation in self.simulations):
            raise GpusimError(f"the ranks wait for each other for ever: {self.waiting()}")
        for simulation, ended in zip(self.simulations, self.processes.rows["ended"], strict=True):
            if not ended:
                simulation.reason = state.DESERTED

    def waiting(self) -> str:
        """Which program waits in which collective for which others, as sentences: a circle of them where there is one."""
        waits: dict[int, tuple[int, str]] = {}
        for met, meeting in zip(self.fabric.rendezvous, self.between.meetings, strict=False):
            there = {int(self.fabric.members[int(met["first"]) + i]["process"]) for i in range(int(met["arrived"]))}
            absent = [(q, operator) for q, operator in meeting.members if q not in there]
            for p, own in meeting.members if there and absent else ():
                q, operator = absent[0]
                if p in there:
                    what = f"{meeting.name or 'an exchange'} (its operator {own})"
                    waits.setdefault(p, (q, f"rank {p} waits in {what} for rank {q} (its operator {operator})"))
        return "; ".join(_circle(waits)) or "none of them is at an operator that it shares with another"


def _circle(waits: Mapping[int, tuple[int, str]]) -> list[str]:
    """The sentences of a circle, or all where none waits for itself at last."""
    for start in waits:
        at, path = start, list[int]()
        while at in waits and at not in path:
            path.append(at)
            at = waits[at][0]
        if at in path:
            return [waits[p][1] for p in path[path.index(at) :]]
    return [said for _, said in waits.values()]


def _share(simulations: Sequence[Simulation], between: Connections) -> list[list[int]]:
    """All programs have the same links, routes and flows from now on; returns the links of each meeting's route."""
    at: dict[SharedLink, int] = {name: i for i, name in enumerate(between.rates)}
    rates, routes = list(between.rates.values()), list[int]()
    for p, simulation in enumerate(simulations):
        for name, rate in zip(simulation.links, simulation.island.link["rate"], strict=True):
            there = name if between.tenancy is None else next((at[q, name] for q in range(p) if (q, name) in at), name)
            at[p, name] = len(rates) if there is name else int(there)  # the links of programs on one device are the same
            rates += [rate] if there is name else []
    for p, simulation in enumerate(simulations):
        beyond = between.beyond[p] if between.beyond else {}
        passed = [[at[p, name], *(at[link] for link in beyond.get(name, ()))] for name in simulation.links]
        _reroute(simulation, passed, routes)
    of_meetings = [[at[link] for link in meeting.route] for meeting in between.meetings]
    link = table(len(rates), state.LINK)
    link["rate"] = rates
    common = {
        "fluid": simulations[0].island.fluid,
        "link": link, "traffic": simulations[0].island.traffic,
        "route": np.array([*routes, *(i for route in of_meetings for i in route)], np.int64),
        "flow": table(sum(len(s.island.flow) for s in simulations) + len(between.meetings), state.FLOW),
        "arrived": table(sum(len(s.island.arrived) for s in simulations), state.ARRIVAL),
    }
    for p, simulation in enumerate(simulations):
        simulation.island = simulation.island._replace(**common)
        simulation.island.clock["process"], simulation.island.clock["coupled"] = p, 1
    starts = len(routes) + np.cumsum([0, *map(len, of_meetings)])
    return [[int(first), int(end)] for first, end in pairwise(starts)]


def _reroute(simulation: Simulation, passed: Sequence[Sequence[int]], routes: list[int]) -> None:
    """The routes of a program's ways, appended to those of all: `passed`, instead of each of its own links."""
    route = simulation.island.route
    for way in simulation.island.ways:
        first, end, memory = int(way["route"]), int(way["route_end"]), int(way["passes"])
        way["route"] = len(routes)
        routes += [i for own in route[first:end] for i in passed[own]]
        way["route_end"] = len(routes)
        routes += [passed[own][0] for own in route[end : end + memory]]


def _processors(programs: int, meetings: Sequence[Meeting]) -> list[dict[int, int]]:
    """Of each program: operator -> blocks that its meetings take of the multiprocessors, of several the most."""
    blocks: list[dict[int, int]] = [{} for _ in range(programs)]
    for meeting in meetings:
        for program, operator in meeting.members:
            blocks[program][operator] = max(meeting.blocks, blocks[program].get(operator, 0))
    return blocks


class _Meets(NamedTuple):
    """Which meetings each operator has: of each program where they begin, which operators have any; and all meetings."""

    starts: list[I64]
    operators: list[I64]
    meetings: I64


def _meets(operators: Sequence[int], meetings: Sequence[Meeting]) -> _Meets:
    rows = sorted((p, operator, k) for k, meeting in enumerate(meetings) for p, operator in meeting.members)
    program, operator, meeting = np.array(rows, np.int64).reshape(-1, 3).T
    first = np.searchsorted(program, np.arange(len(operators)))
    mine = [operator[program == p] for p in range(len(operators))]
    starts = [at + np.searchsorted(own, np.arange(count + 1)) for at, own, count in zip(first, mine, operators, strict=True)]
    return _Meets(starts, mine, meeting)


def _with_meetings(program: Any, starts: I64, operators: I64) -> Any:
    """A program's tables, with the meetings of its operators."""
    carried = program.carried.copy()
    carried[1, operators] = state.MEETS
    return program._replace(meets=starts, carried=carried)


def _fabric(
    meetings: Sequence[Meeting], of_operators: I64, routes: Sequence[Sequence[int]], programs: Sequence[int]
) -> Fabric:
    rows, first = table(max(1, len(meetings)), RENDEZVOUS), 0
    rows["begins"] = state.NEVER
    for met, meeting, route in zip(rows, meetings, routes, strict=False):
        met["expected"], met["first"] = len(meeting.members), first
        met["latency"], met["size"], met["cap"] = meeting.latency, meeting.size, meeting.rate
        met["route"], met["route_end"] = route
        first += len(meeting.members)
    gpu = table(1, GPU)
    gpu["next"] = state.NEVER
    beginning = [k for k, meeting in enumerate(meetings) if not meeting.members]
    rows["begins"][beginning] = rows["latency"][beginning]
    lengths = {"members": max(1, first), "K + 1": len(meetings) + 1, "P": len(programs)}
    return filled(
        Fabric, lengths, programs=np.array(programs, np.int64), gpu=gpu,
        run=np.array([address(run_until, RUN)], np.int64), rendezvous=rows,
        meetings=np.ascontiguousarray(of_operators) if len(of_operators) else np.zeros(1, np.int64),
        beginning=np.array([len(beginning), *beginning] + [0] * (len(meetings) - len(beginning)), np.int64),
    )  # fmt: skip
