"""A genetic search over what to swap: the individual that is estimated fastest wins.

generations, population  how many rounds of how many individuals; their product is the work
seed                     of the search's random numbers
fill                     share of the memory that the plan may fill; the rest is for what the allocator loses

An individual ranks the idle stretches of large tensors (0.1 % of the memory and more); decoded, stretches are taken in its
order until the rest fits, and copies back take turns on the link.  Its fitness is the estimated time of the program
(`parts/swap/estimate.py`).  The first ones rank by spare time, length, last use and size; two parents, each the better of
two drawn, are mixed rank by rank, one rank in twenty is drawn anew, and the best two live on.  Departures from the paper: the
order of operators and the addresses, which it searches as well, are the program's and the allocator's; what to swap is
searched here, where the paper takes the longest unused.

Source: C.-C. Huang et al., "SwapAdvisor: Pushing deep learning beyond the GPU memory limit via smart swapping", ASPLOS 2020.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from gpusim.policies.plan.parts.swap.estimate import estimate
from gpusim.policies.plan.parts.swap.idle import idle, in_time, in_turns, schedule
from gpusim.policies.plan.parts.swap.stretches import until_it_fits
from gpusim.policies.planning import Schedule, View

PARAMS = {"generations": 20, "population": 30, "seed": 0, "fill": 1.0}
KNOWS = "future"
MUTATED = 0.05
ELITE = 2


def plan(view: View, generations: int = 20, population: int = 30, seed: int = 0, fill: float = 1.0) -> Schedule:
    stretches = idle(view)
    stretches = stretches.of(stretches.size * 1000 >= view.capacity)
    back = in_time(view, stretches)
    room = fill * view.capacity
    draw = np.random.default_rng(seed)

    def decoded(ranks: npt.NDArray[np.float64]) -> Schedule:
        rows = until_it_fits(view, stretches, back, np.argsort(ranks, kind="stable"), room)
        chosen = stretches.of(np.sort(rows))
        return schedule(chosen, in_turns(view, chosen, room))

    count = len(stretches.unit)
    seen = (-stretches.spare_ns, stretches.starts - stretches.ends, stretches.starts, -stretches.size)
    people = np.array([*(np.argsort(np.argsort(fact, kind="stable")) / max(1, count) for fact in seen)])
    size = max(population, len(people))
    people = np.concatenate([people, draw.random((size - len(people), count))])
    times = np.array([estimate(view, decoded(ranks)) for ranks in people])
    for _ in range(generations):
        best = np.argsort(times, kind="stable")
        people, times = people[best], times[best]
        mother, father = draw.integers(size, size=(2, 2, size - ELITE)).min(axis=1)  # the better of two: the lower row
        children = np.where(draw.random((size - ELITE, count)) < 0.5, people[mother], people[father])
        anew = draw.random(children.shape) < MUTATED
        children[anew] = draw.random(int(anew.sum()))
        people[ELITE:] = children
        times[ELITE:] = [estimate(view, decoded(ranks)) for ranks in children]
    return decoded(people[np.argmin(times)])
