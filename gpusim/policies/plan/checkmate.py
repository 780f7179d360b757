"""The least recomputation with which the program fits: the bound for every other way to recompute, of small programs.

fill    share of the memory that the program may fill; the rest is for what the allocator loses
states  how many states the search may look at

The paper's question, without its restriction to one run of each operator per stage, and answered by a search over what is in
memory instead of an integer program (parts/recompute/optimum.py).  A program with which that does not come to an end, or that
does not fit whatever is dropped, is refused: some twenty tensors that can be recomputed are well within reach, a whole training
step is not, and more than 100 are not tried.

Source: Jain et al., "Checkmate: breaking the memory wall with optimal tensor rematerialization", MLSys 2020.
"""

from __future__ import annotations

from gpusim.base.errors import PolicyError
from gpusim.base.units import show_bytes
from gpusim.policies.plan.parts.recompute import from_trace
from gpusim.policies.plan.parts.recompute.optimum import optimum
from gpusim.policies.plan.parts.recompute.rewrite import rewrite as rewritten
from gpusim.policies.planning import View
from gpusim.trace.trace import Trace

PARAMS = {"fill": 1.0, "states": 100_000}
KNOWS = "future"
LARGEST = 100  # tensors that can be recomputed


def rewrite(view: View, fill: float = 1.0, states: int = 100_000) -> Trace:
    work, budget = view.work, int(view.capacity * fill)
    if work.live_peak <= budget:
        return work.trace
    traced = from_trace.read(work)
    many = f"{int(traced.remade.sum()):,} tensors that can be recomputed"
    if traced.remade.sum() > LARGEST:
        raise PolicyError(f"plan checkmate: a search over {many} does not come to an end", hint="dtr has no such limit")
    best = optimum(traced, budget, states)
    if best.status == "oom":
        raise PolicyError(f"plan checkmate: nothing that is dropped makes '{work.trace.name}' fit into {show_bytes(budget)}")
    if best.status == "given up":
        raise PolicyError(f"plan checkmate: no optimum within {states:,} states for {many}", hint="dtr has no such limit")
    return rewritten(work.trace, traced, best.log)
