"""Tensors are dropped where memory is short, and recomputed by running their operators when they are needed: greedily, online.

heuristic  what leaves: dtr (least cost to have it back, per byte and time since its last use, with all it would take), dtr_eq
           (that cost by classes of dropped tensors, as the paper's runtime does), dtr_local (its own cost alone), lru, size,
           msps (least cost per byte), rand (the same draws each time)
fill       share of the memory that the program may fill; the rest is for what the allocator loses
limit      recomputation, as a share of the program's own time, after which nothing is dropped any more: the rest of the program
           runs as it is, and the evict policy swaps; 0: the program stays as it is from the start

What can be recomputed, and until when: parts/recompute/from_trace.py.  Where dropping does not make room, the program goes
over, and the evict policy swaps; with none it is out of memory.  Only the changes of data that end recomputation are looked up
ahead, which a runtime would meet with copies.

Source: Kirisame et al., "Dynamic tensor rematerialization", ICLR 2021; msps: Peng et al., "Capuchin", ASPLOS 2020.
"""

from __future__ import annotations

from gpusim.base.units import show_bytes
from gpusim.policies.plan.parts.recompute import from_trace
from gpusim.policies.plan.parts.recompute.execution import replay
from gpusim.policies.plan.parts.recompute.rewrite import rewrite as rewritten
from gpusim.policies.planning import View
from gpusim.trace.trace import Trace

PARAMS = {"heuristic": "dtr_eq", "fill": 0.9, "limit": 1.0}
NUMBERS = "gpusim.policies.plan.parts.recompute.heuristics"


def rewrite(view: View, heuristic: str = "dtr_eq", fill: float = 0.9, limit: float = 1.0) -> Trace:
    work, budget = view.work, int(view.capacity * fill)
    if not limit:
        return work.trace
    traced = from_trace.read(work)
    most = int(limit * work.duration.sum())
    outcome = replay(traced.program, heuristic, budget, limit=most, lenient=True)
    if not outcome.evictions:
        return work.trace
    warnings = []
    if outcome.remat_cost > most:
        warnings.append(f"recomputation takes more than {limit:g} of the program's own time: after that nothing is dropped")
    elif outcome.overdrafts:
        warnings.append(f"{outcome.overdrafts:,} operators find no room in {show_bytes(budget)}, whatever is dropped")
    return rewritten(work.trace, traced, outcome.log, warnings)
