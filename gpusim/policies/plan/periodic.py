"""All that a program holds leaves before every n-th of its steps, and comes back as it is used.

steps  n: iterations from one departure to the next
ahead  1: it is asked back at once, in the order of its next uses, and not only when it is needed

That is how programs take turns on a GPU whose memory holds one of them; what others do meanwhile is not simulated.

Source: P. Yu and M. Chowdhury, "Salus: Fine-grained GPU sharing primitives for deep learning applications", MLSys 2020 (what a
switch costs that moves a job's memory between host and device, section 2).
"""

from __future__ import annotations

import numpy as np

from gpusim.base.errors import PolicyError
from gpusim.policies.planning import EVICT, NOTHING, PREFETCH, Schedule, View
from gpusim.trace.edit import begun, issued
from gpusim.trace.iterations import iterations
from gpusim.trace.roles import lives

PARAMS = {"steps": 1, "ahead": 0}
KNOWS = "future"


def plan(view: View, steps: int = 1, ahead: int = 0) -> Schedule:
    if steps < 1:
        raise PolicyError("parameter 'steps' of policy 'periodic' is 0", hint="at least 1")
    trace = view.work.trace
    if not trace.ops or not view.tiers:
        return NOTHING
    step = iterations(trace)[issued(trace)]
    firsts = np.flatnonzero(np.diff(step, prepend=step[0]) != 0)  # operators with which iterations begin, but the first
    start = begun(trace)[firsts]
    born, died = lives(trace)
    rows: list[tuple[int, int, int]] = []
    for at, event in zip(firsts[steps - 1 :: steps].tolist(), start[steps - 1 :: steps].tolist(), strict=True):
        held = np.flatnonzero((born < event) & (died > event) & (trace.size > 0))
        rows += [(at, EVICT, t) for t in held.tolist()]
        if ahead:
            rows += [(at, PREFETCH, t) for t in _by_next_use(view, held, at).tolist()]
    return Schedule.of(rows)


def _by_next_use(view: View, held: np.ndarray, at: int) -> np.ndarray:
    """Those that are used from operator `at` on, the first used first."""
    work = view.work
    following = work.acc_unit[work.acc_start[at] :]
    used, first = np.unique(following, return_index=True)
    found: np.ndarray = used[np.argsort(first)]
    return found[np.isin(found, held)]
