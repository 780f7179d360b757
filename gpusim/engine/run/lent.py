"""The accounts of memories that programs of a machine lend each other, and what a program leaves there at its end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from gpusim.base.tables import table
from gpusim.engine import state
from gpusim.machine.topology.connections import Connections
from gpusim.policies.contract import HELD
from gpusim.trace.trace import ALLOC, FREE, OP
from gpusim.trace.workload import Workload

if TYPE_CHECKING:
    from gpusim.engine.run.simulate import Simulation

BUCKETS = 1024  # of program time, for policies that know what a lender will need


def open_accounts(simulations: Sequence[Simulation], between: Connections) -> None:
    """All programs have the same accounts from now on: a row of each lender, and one of each device that lends nothing."""
    accounts, ahead = _accounts(simulations, between)
    number = {name: k for k, name in enumerate(between.lenders)}
    for p, simulation in enumerate(simulations):
        island = simulation.island = simulation.island._replace(accounts=accounts, ahead=ahead)
        mine = next((k for k, one in enumerate(between.lenders.values()) if one.program == p), -1)
        island.tenants["account"], island.tenants["lends"] = (len(number) + p, 0) if mine < 0 else (mine, 1)
        for memory, tier in zip(island.memories[1:], simulation.machine.tiers, strict=True):
            if tier.lender:
                memory["account"] = number[tier.lender]


def _accounts(simulations: Sequence[Simulation], between: Connections) -> tuple[Any, Any]:
    lenders = list(between.lenders.values())
    accounts = table(len(lenders) + len(simulations), state.ACCOUNT)
    wanted = any(simulation.pool is not None and "room" in simulation.pool.facts for simulation in simulations)
    ahead = np.zeros((len(accounts), BUCKETS if wanted else 1), np.int64)
    accounts["process"], accounts["bucket"] = -1, 1.0
    for k, lender in enumerate(lenders):
        row = accounts[k]
        row["capacity"], row["lends"], row["process"] = lender.capacity, lender.lends, lender.program
        if lender.program >= 0:
            simulation = simulations[lender.program]
            row["capacity"] = simulation.machine.capacity
            row["held"] = row["booked"] = simulation.policies.place[HELD]
            if wanted:
                row["bucket"], ahead[k] = _held_at_most(simulation.work)
    return accounts, ahead


def _held_at_most(work: Workload) -> tuple[float, Any]:
    """(ns of program time of a bucket, int64[BUCKETS]: bytes of tensors that are alive at most in each)."""
    trace = work.trace
    span = float(work.clock[-1] + 1.0) if len(work.clock) else 1.0
    begins = np.isin(trace.kind, (ALLOC, FREE))
    size = trace.size[trace.arg[begins]]
    alive = np.concatenate([[0], np.cumsum(np.where(trace.kind[begins] == ALLOC, size, -size))])
    at = np.append(work.clock, span)[np.cumsum(trace.kind == OP)[begins]]  # when the next operator starts
    column = np.minimum((at / span * BUCKETS).astype(np.int64), BUCKETS - 1)
    most = alive[np.searchsorted(column, np.arange(BUCKETS))]  # what is alive before a bucket goes on in it
    np.maximum.at(most, column, alive[1:])
    return span / BUCKETS, most


def close(simulation: Simulation) -> None:
    """What the program has of lent memories is free when it has come to its end."""
    island = simulation.island
    for memory in island.memories[1:]:
        if memory["account"] >= 0:
            island.accounts[memory["account"]]["lent"] -= memory["used"]
            memory["used"] = 0
    waiting = island.activities[(island.activities["gives"] > 0) & (island.activities["done"] == 0)]
    np.subtract.at(island.accounts["lent"], waiting["gives_to"], waiting["gives"])
    called = waiting[waiting["called"] != 0]
    np.subtract.at(island.accounts["coming"], called["gives_to"], called["gives"])
    island.activities["gives"] = 0
    island.fluid["calls"] = island.fluid["reshare"] = 1
