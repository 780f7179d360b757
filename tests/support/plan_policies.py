"""Plan policies for tests: one that carries out what a test writes down, and one that moves tensors about at random."""

from __future__ import annotations

import numpy as np

from gpusim import policy
from gpusim.policies.planning import EVICT, PREFETCH, Schedule, View
from gpusim.trace.trace import Trace


class Written:
    """What the next run shall do; a test writes it down before it simulates."""

    rows: tuple[tuple[int, ...], ...] = ()
    remote: tuple[int, ...] = ()
    program: Trace | None = None


@policy.plan
def written(view: View) -> Schedule:
    """The rows of `Written`."""
    return Schedule(Schedule.of(Written.rows).actions, np.array(Written.remote, np.int64))


@policy.plan
def scatter(view: View, seed=1, actions=1000, remote=0):  # type: ignore[no-untyped-def]
    """Random moves: any tensor, before any operator, to any tier."""
    random, trace = np.random.Generator(np.random.PCG64(int(seed))), view.work.trace
    rows = zip(
        random.integers(0, trace.ops, int(actions)).tolist(), random.choice([EVICT, PREFETCH], int(actions)).tolist(),
        random.integers(0, trace.tensors, int(actions)).tolist(),
        random.integers(0, len(view.tiers) + 1, int(actions)).tolist(), strict=True,
    )  # fmt: skip
    stays = random.choice(trace.tensors, min(int(remote), trace.tensors), replace=False)
    return Schedule(Schedule.of(rows).actions, np.sort(stays).astype(np.int64))


OWN = (written, scatter)  # for the runs that name them
