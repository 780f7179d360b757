"""Replaying a program under a budget: what it costs, and what was evicted and run again, in order."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gpusim.base.tables import table
from gpusim.policies.plan.parts.recompute import heuristics
from gpusim.policies.plan.parts.recompute import state as tables
from gpusim.policies.plan.parts.recompute.problem import RecomputeProgram
from gpusim.policies.plan.parts.recompute.state import CHOSEN, EVENT, FINISHED, LOG_FULL
from gpusim.policies.plan.parts.recompute.steps import advance  # compiles

NO_LIMIT = 2**62
STATUS = ("ok", "oom", "thrash")  # by what `advance` came back with


@dataclass(frozen=True)
class RecomputeOutcome:
    """What a replay came to; of one that failed, the state in which it did.  Bytes and ns."""

    status: str       # "ok"; "oom": nothing left to evict; "thrash": over the limit of work
    model_cost: int   # of operators run for the first time
    remat_cost: int   # of operators run again
    evictions: int    # chosen by the heuristic
    evicted_bytes: int
    eager_evictions: int  # with the last reference
    reruns: int
    first_runs: int
    peak: int
    final: int        # bytes there at the end
    overdrafts: int   # operators run over the budget, where that is allowed
    victims: Any      # roots of the storages chosen by the heuristic, in order
    log: Any          # tables.EVENT rows

    @property
    def overhead(self) -> float:
        """Time as a share of the program's own; the clock starts at 1, as the runtime's does."""
        return (1 + self.model_cost + self.remat_cost) / self.model_cost

    @property
    def digest(self) -> str:
        """The victims as one short text: the first 16 hex digits of the SHA-256 over their numbers, a line each."""
        return hashlib.sha256("".join(f"{v}\n" for v in self.victims.tolist()).encode()).hexdigest()[:16]


def replay(
    program: RecomputeProgram, heuristic: str = "dtr_eq", budget: int = NO_LIMIT, *, limit: int = NO_LIMIT,
    lenient: bool = False,
    seed: int = 0,
) -> RecomputeOutcome:  # fmt: skip
    """Run the program within `budget` bytes.

    limit    ns of recomputation after which a run is given up
    lenient  what finds no room, or comes after the limit, runs over the budget instead of ending the run
    seed     of the heuristic `rand`
    """
    run = tables.build(program, heuristics.index(heuristic), budget, limit, lenient, seed)
    parts = []
    while (reason := advance(run)) == LOG_FULL:
        parts.append(run.log)
        run.control["logged"] = 0
        run = run._replace(log=table(2 * len(run.log), EVENT))
    c = run.control[0]
    log = np.concatenate([*parts, run.log[: int(c["logged"])]])
    return RecomputeOutcome(
        status=STATUS[reason - FINISHED], model_cost=int(c["model"]), remat_cost=int(c["remat"]), evictions=int(c["evictions"]),
        evicted_bytes=int(c["evicted_bytes"]), eager_evictions=int(c["eager"]), reruns=int(c["reruns"]),
        first_runs=int(c["first_runs"]), peak=int(c["peak"]), final=int(c["memory"]), overdrafts=int(c["overdrafts"]),
        victims=program.root[log["which"][log["what"] == CHOSEN]], log=log,
    )  # fmt: skip


def peak(program: RecomputeProgram) -> int:
    """The most bytes there at once without a budget, constants freed with their last reference: what ratios refer to."""
    return replay(replace(program, frees_constants=True), "lru").peak
