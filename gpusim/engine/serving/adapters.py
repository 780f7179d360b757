"""What a step costs with LoRA adapters: the step of the model, products with adapters, and loads that the step waits for.

An adapter of the step that is in none of the slots is copied there first, in place of the one used longest ago; one that is
not in the host's memory is read from the disk before that, in the same way.  What leaves the host's memory leaves its slot.

Source: LRUCacheWorkerLoRAManager of vLLM 0.33.0 (Apache-2.0), in own words; adapters of a step are taken in the order of its
rows, which there is that of a set.
"""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from gpusim.base.compiled import Placed, by_pointer, entry, kernel, tables_at
from gpusim.base.tables import filled, signature
from gpusim.engine.serving.costs import StepCost
from gpusim.engine.serving.modelled import ModelledCost, modelled, modelled_at, modelled_needs
from gpusim.engine.serving.tables import COST, NEEDS
from gpusim.machine.serving import step as steps
from gpusim.machine.serving.build import ServedStepTimes
from gpusim.policies.schedule.parts.tables import N_STEP, REQUESTS, RequestTable, requests_at, step_at

TO_BASE, TO_REQUESTS = range(2)
CLOCK, LOADS, READS, LOAD_NS, PRODUCT_NS, COUNTS = range(6)  # uses so far; loads into slots, reads from disk; ns of both kinds


@by_pointer
class AdapterTables(NamedTuple):
    """Two caches: the slots, and the host's memory."""

    at: Annotated[Any, np.int64, 2]
    count: Annotated[Any, np.int64, COUNTS]
    ns: Annotated[Any, np.float64, 2]            # of a load from the host to a slot, and of a read from the disk
    slot: Annotated[Any, np.int64, "slots"]      # the adapter in it, 0: none
    host: Annotated[Any, np.int64, "hosts"]
    used: Annotated[Any, np.int64, "adapters"]   # when each was used last
    grid: Annotated[Any, np.float64, "numbers"]  # log ns of products, by tokens and adapters
    shape: Annotated[Any, np.int64, 2]           # of the grid


ADAPTERS = signature(AdapterTables)
adapters_at = tables_at(ADAPTERS)


@kernel
def place(held: Any, used: Any, which: int) -> int:
    """Where an adapter is in a cache, or else is to go: the first free place, or that of the one used longest ago."""
    best = 0
    for i in range(held.size):
        if held[i] == which:
            return i
        if held[best] != 0 and (held[i] == 0 or used[held[i]] < used[held[best]]):
            best = i
    return best


@kernel
def bring(a: AdapterTables, which: int) -> float:
    """The adapter is in a slot now; ns that this took."""
    took = 0.0
    at = place(a.host, a.used, which)
    if a.host[at] != which:
        for i in range(a.slot.size):
            if a.slot[i] == a.host[at]:
                a.slot[i] = 0
        a.host[at] = which
        a.count[READS] += 1
        took += a.ns[1]
    at = place(a.slot, a.used, which)
    if a.slot[at] != which:
        a.slot[at] = which
        a.count[LOADS] += 1
        took += a.ns[0]
    a.count[CLOCK] += 1
    a.used[which] = a.count[CLOCK]
    return took


@entry(COST)
def adapted(at: int, step: int) -> int:
    """ns of the step whose composition stands at `step`, with the adapters of its requests."""
    a, s = adapters_at(at), step_at(step)
    requests, m = requests_at(a.at[TO_REQUESTS]), modelled_at(a.at[TO_BASE])
    ns = modelled(a.at[TO_BASE], step)
    begun = a.count[CLOCK]
    tokens, distinct, waited = 0, 0, 0.0
    for i in range(s.word[N_STEP]):
        which = requests.adapter[s.request[i]]
        if which > 0:
            tokens += s.tokens[i]
            if a.used[which] <= begun:
                waited += bring(a, which)
                distinct += 1
    if tokens == 0:
        return ns
    products = steps.grid_ns(a.grid, 0, a.shape[0], a.shape[1], float(tokens), float(distinct))
    m.summed[steps.OTHER] += round(products)
    m.summed[steps.HOST] += round(waited)
    a.count[PRODUCT_NS] += round(products)
    a.count[LOAD_NS] += round(waited)
    return ns + round(products) + round(waited)


@entry(NEEDS)
def adapted_needs(at: int, step: int, needs: Any) -> int:
    """Those of the step without adapters."""
    return int(modelled_needs(adapters_at(at).at[TO_BASE], step, needs))


class AdaptedCost(ModelledCost):
    """A model's steps with adapters.

    slots, hosts  adapters that the device and the host's memory hold
    load, read    ns of one from the host to a slot, and from the disk to the host
    grid          log ns of products with adapters (`machine.serving.adapters`)
    """

    def __init__(
        self, times: ServedStepTimes, requests: RequestTable, slots: int, hosts: int, load: float, read: float,
        grid: npt.NDArray[np.float64],
    ) -> None:  # fmt: skip
        super().__init__(times)
        self._base, self._requests = self._placed, Placed(requests, REQUESTS)
        count = 1 + int(requests.adapter.max(initial=0))
        self.adapters = filled(
            AdapterTables, {"slots": slots, "hosts": hosts, "adapters": count, "numbers": grid.size},
            at=np.array([self.own, self._requests.address], np.int64), ns=np.array([load, read]), grid=grid.ravel(),
            shape=np.array(grid.shape, np.int64),
        )  # fmt: skip
        StepCost.__init__(self, adapted, self.adapters, ADAPTERS, adapted_needs)

    def adapter_counts(self) -> dict[str, int]:
        """Loads into slots, reads from the disk, and ns of loads and of products so far."""
        names = ("loads", "reads", "load_ns", "product_ns")
        return dict(zip(names, self.adapters.count[LOADS:].tolist(), strict=True))
