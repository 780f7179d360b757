"""The plan at work: its actions, one a step of the host, before the operator at which they stand."""

from __future__ import annotations

from typing import Any

from gpusim.base.compiled import kernel
from gpusim.engine.clock import queues
from gpusim.engine.memory import swaps
from gpusim.engine.state import LOCKED, SPACE, WHERE, Instructions, Island, PolicyTables
from gpusim.policies.contract import DEVICE, EVICT
from gpusim.results import log


@kernel
def acts_at(prog: Instructions, h: Any, o: int) -> bool:
    """The plan has something left to do before operator o."""
    return h.planned < prog.plan.size and prog.plan[h.planned].at == o


@kernel
def may_copy(isl: Island, h: Any) -> bool:
    """There is room in the queues of copies; if not, the host comes back later."""
    q = queues.full_of_copies(isl)
    if q >= 0:
        h.state, h.queue = SPACE, q
    return q < 0


@kernel
def evict(isl: Island, pol: PolicyTables, h: Any, u: int, to: int) -> int:
    """1 when the unit leaves the device, to this tier: it is resident, not locked, and the tier has room; else 0."""
    if isl.flags[WHERE, u] != DEVICE or isl.flags[LOCKED, u] or isl.units[u].size == 0:
        return 0
    return 1 if swaps.send_away(isl, pol, h, u, to) == 0 else 0


@kernel
def acted(isl: Island, prog: Instructions, pol: PolicyTables, h: Any, done: bool) -> None:
    """The next action is behind us, carried out or skipped."""
    n, action = isl.counts[0], prog.plan[h.planned]
    what = log.SKIPPED
    if not done:
        n.plan_skipped += 1
    elif action.verb == EVICT:
        n.plan_evictions += 1
        what = log.PLANNED_OUT
    else:
        n.plan_prefetches += 1
        what = log.PLANNED_IN
    queues.record(isl, pol, log.DECIDE, action.unit, what, -1, isl.units[action.unit].block if done else 0)
    h.planned += 1
