"""The release policy at work: it says how much to evict, the evict policy says which; one unit per step of the host."""

from __future__ import annotations

from typing import Any

from gpusim.base.compiled import outlined
from gpusim.engine.clock import queues
from gpusim.engine.memory import evicting as choice
from gpusim.engine.memory import swaps
from gpusim.engine.state import ASK, BAD_ANSWER, SPACE, Island, PolicyTables
from gpusim.engine.verbs import V_RELEASE, as_release
from gpusim.policies.contract import CAPACITY, HELD, ROUNDED
from gpusim.results import log

BAD_AMOUNT = -2  # where a unit would stand: the release policy's answer is no amount


@outlined
def ask(isl: Island, pol: PolicyTables, u: int) -> int:
    """A block has been given to the unit: how many bytes shall leave?  Returns 0 or BAD_ANSWER."""
    t = isl.tenants[0]
    wanted = as_release(pol.verbs[V_RELEASE, 0], pol.verbs[V_RELEASE, 1])(
        pol.release, pol.release_weights, pol.release_params, pol.place[HELD], pol.place[ROUNDED], pol.place[CAPACITY],
        isl.units[u].size, t.program,
    )  # fmt: skip
    if wanted < 0 or wanted > pol.place[ROUNDED]:
        t.request, t.request_bytes = BAD_AMOUNT, wanted
        return BAD_ANSWER
    t.leaving, t.leaving_for = wanted, u
    return 0


@outlined
def step(isl: Island, pol: PolicyTables, h: Any) -> int:
    """The next unit leaves, if one may and there is room below.  Returns 0 or the reason to stop before it."""
    t, n = isl.tenants[0], isl.counts[0]
    q = queues.full_of_copies(isl)
    if q >= 0:
        h.state, h.queue = SPACE, q
        return 0
    v = choice.choose(isl, pol, t.leaving_for)
    if v == -2:
        t.request, t.request_bytes = t.leaving_for, t.leaving
        return ASK
    if v >= 0 and not choice.may_leave(isl, v):
        t.request = v
        return BAD_ANSWER
    block = isl.units[v].block if v >= 0 else 0
    if v < 0 or swaps.send_away(isl, pol, h, v, 0):
        t.leaving = 0  # what cannot leave stays
        return 0
    queues.record(isl, pol, log.DECIDE, v, log.RELEASED, -1, block)
    n.release_evictions += 1
    n.release_bytes += block
    t.leaving = max(0, t.leaving - block)
    if t.leaving == 0:
        t.left_by = isl.clock[0].number
    return 0
