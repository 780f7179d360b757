"""How runs or parts of a run are distributed: performance profiles of policies over places, and durations within a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gpusim.results.metrics import TIE
from gpusim.results.result import Result
from gpusim.show.values.comparison import comparison, ratios

F64 = npt.NDArray[np.float64]
LEAST_PLACES = 5


@dataclass(frozen=True)
class Cumulative:
    """A line of a cumulative distribution: at `values` (rising) the share `shares` of all is reached.

    count   of what there is, with those that never reach any value
    """

    name: str
    oracle: bool
    values: F64
    shares: F64
    count: int

    def quantile(self, share: float) -> float | None:
        """The value that this share of all does not exceed; None where too few reach any."""
        at = int(np.searchsorted(self.shares, share - 1e-12))
        return float(self.values[at]) if at < len(self.values) else None


def cumulative(name: str, values: Sequence[float] | F64, count: int | None = None, oracle: bool = False) -> Cumulative:
    """Of these values; `count` is more where some never reach any."""
    rising = np.sort(np.asarray(values, np.float64))
    count = len(rising) if count is None else count
    return Cumulative(name, oracle, rising, np.arange(1, len(rising) + 1) / max(count, 1), count)


def profiles(results: Sequence[Result], metric: str = "") -> tuple[Cumulative, ...]:
    """Performance profiles: the share of places in which a policy is within a factor of the best (Dolan and Moré 2002).

    A place is a machine, program and memory size.  A run that does not finish is within no factor.
    """
    compared = comparison(results, metric)
    found: dict[str, list[float]] = {name: [] for name in compared.names}
    places = 0
    for panel in compared.panels:
        lines = ratios(panel, compared.metric)
        decided = {r.x for line in lines.values() for r in line if r.value is not None}
        places += len(decided)
        for name, line in lines.items():
            found[name] += [r.value for r in line if r.value is not None]
    return tuple(cumulative(name, found[name], places, name in compared.future) for name in compared.names)


def answer(lines: Sequence[Cumulative]) -> str:
    """Of performance profiles, which policy is best most often, and which is never far away; "" where none has a value."""
    fair = [line for line in lines if not line.oracle] or list(lines)
    if not any(len(line.values) for line in fair):
        return ""
    best = max(fair, key=_often_best)
    safe = max(fair, key=lambda line: (len(line.values), -(line.values[-1] if len(line.values) else 0.0)))
    said = f"{best.name} is best or within 1 % of it in {100 * _often_best(best):.0f} % of the places."
    if len(safe.values) == safe.count:
        return f"{said} {safe.name} is never further away than {safe.values[-1]:.3g}×."
    return f"{said} None finishes in all of them."


def _often_best(line: Cumulative) -> float:
    """The share of the places in which it is within 1 % of the best."""
    near = line.shares[line.values <= 1 + TIE]
    return float(near[-1]) if len(near) else 0.0


def telling(results: Sequence[Result]) -> bool:
    """Whether several policies compete in enough places."""
    lines = profiles(results)
    return len(lines) > 1 and max(line.count for line in lines) >= LEAST_PLACES and any(len(line.values) for line in lines)
