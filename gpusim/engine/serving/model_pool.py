"""Host memory that keeps models: which are there, and which leaves for another, under an evict policy of tensors."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from gpusim.base.compiled import direct
from gpusim.policies.contract import FACTS
from gpusim.policies.forms import EvictPolicy

FORMS = ("ordered", "score")
"""Of policies that need no clock, and under which something leaves."""


class ModelPool:
    """Models by number.  The policy is told of each load; time is that of the service, the next use a model's next request.

    sizes     bytes of each model in host memory
    reload    ns of a load from the disk, of each
    """

    def __init__(self, capacity: int, sizes: Sequence[int], reload: Sequence[float], evict: EvictPolicy) -> None:
        """Raises PolicyError for a policy that reads the time or is plain Python."""
        if evict.form not in FORMS:
            why = "nothing leaves under it" if evict.form == "none" else f"it needs the timed engine (form '{evict.form}')"
            raise evict.error(f"cannot manage models in host memory: {why}")
        self.capacity, self.sizes, self.used, self.evicted = capacity, sizes, 0, 0
        self.locked = np.zeros(len(sizes), np.uint8)
        self.there: set[int] = set()
        self._reload, self._evict = reload, evict
        self._insert, self._touch, self._remove, self._victim = (
            direct(verb) for verb in (evict.insert, evict.touch, evict.remove, evict.victim)
        )
        self._state = evict.state(len(sizes), capacity, evict.params, 0)
        self._uses, self._arrived, self._born = (np.zeros(len(sizes)) for _ in range(3))
        self._facts = np.zeros(len(FACTS))

    def makes_room(self, model: int) -> bool:
        """Models leave until there is room for this one; False where those that may not leave are in its way."""
        while self.used + self.sizes[model] > self.capacity:
            out = int(self._victim(*self._state, model, self.sizes[model], self.locked)) if self.there else -1
            if out < 0:
                return False
            self._remove(*self._state, out, self.sizes[out], 1.0)
            self.there.remove(out)
            self.used -= self.sizes[out]
            self.evicted += 1
        return True

    def put(self, model: int, now: int, next_use: float) -> None:
        """The model has room from now on; it stays until it is let go."""
        self._arrived[model] = now
        self._born[model] = self._born[model] if self._uses[model] else now
        self._uses[model] += 1
        self._insert(*self._state, model, self.sizes[model], self._key(model, now, next_use))
        self.there.add(model)
        self.used += self.sizes[model]

    def use(self, model: int, now: int, next_use: float) -> None:
        """It is loaded from here."""
        self._uses[model] += 1
        self._touch(*self._state, model, self.sizes[model], self._key(model, now, next_use))

    def requested(self, model: int, now: int, next_use: float) -> None:
        """A request has come for it: what a score foresees has changed; a policy with an order of its own is told nothing."""
        if self._evict.form == "score" and model in self.there:
            self._touch(*self._state, model, self.sizes[model], self._key(model, now, next_use))

    def _key(self, model: int, now: int, next_use: float) -> float:
        if self._evict.form != "score":
            return 0.0
        known = {
            "size": self.sizes[model], "reload_ns": self._reload[model], "last_use": now, "next_use": next_use,
            "uses": self._uses[model], "arrived": self._arrived[model], "born": self._born[model],
        }  # fmt: skip
        for i, name in enumerate(FACTS):
            self._facts[i] = known.get(name, 0.0)
        return float(self._evict.score(self._facts, self._evict.params))


def next_uses(arrival: Sequence[int], model: Sequence[int], models: int) -> list[float]:
    """Of each request when the next one comes for its model, ns; infinite where there is none."""
    found, seen = [math.inf] * len(arrival), [math.inf] * models
    for r in range(len(arrival) - 1, -1, -1):
        found[r], seen[model[r]] = seen[model[r]], arrival[r]
    return found
