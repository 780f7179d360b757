"""How sure a comparison is: the results of each line on sampled machines, ties, and the number that would change the best."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from gpusim.base.units import show_fraction
from gpusim.results.metrics import same
from gpusim.results.result import Result
from gpusim.results.sampled import Push
from gpusim.show.groups import mean
from gpusim.show.view import REFERENCE, human

LOW, HIGH = 0.1, 0.9  # the interval that is shown: 10th to 90th percentile
BY_TURNS = 0.1  # share of the samples from which a change of order counts

F64 = npt.NDArray[np.float64]


def samples(runs: Iterable[Result], metric: str) -> F64 | None:
    """The metric on every sampled machine, the mean over repetitions; inf where one did not finish, None without samples."""
    columns = [r.sampled.values[metric] for r in runs if r.sampled and metric in r.sampled.values]
    if not columns or len({len(column) for column in columns}) > 1:
        return None
    return np.asarray(np.mean(columns, axis=0), np.float64)


def interval(runs: Iterable[Result], metric: str) -> tuple[float, float] | None:
    """The 10th and 90th percentile over the sampled machines on which the runs finish."""
    found = samples(runs, metric)
    if found is None or not len(finite := found[np.isfinite(found)]):
        return None
    return float(np.quantile(finite, LOW)), float(np.quantile(finite, HIGH))


def drawn(results: Sequence[Result]) -> str:
    """What the sampled machines are, in a sentence; "" when there are none."""
    found = [r.sampled for r in results if r.sampled]
    if not found:
        return ""
    count = max(len(column) for s in found for column in s.values.values())
    given, assumed = ([getattr(s, name) for s in found] for name in ("given", "assumed"))
    return (
        f"Sampled: {count} machines per profile, {_from_to(given)} of its numbers between error bars of their own, "
        f"{_from_to(assumed)} estimates within {show_fraction(found[0].estimated)}; p10 to p90 is over these. "
        "Kernel times vary by one factor for each class of kernels."
    )


def _from_to(counts: Sequence[int]) -> str:
    return " to ".join(dict.fromkeys((str(min(counts)), str(max(counts)))))


def with_bars(metric: str, value: float, bars: tuple[float, float] | None) -> str:
    """ "2.99×", or "2.99× (2.80× to 3.20×)"."""
    return human(metric, value) + (f" ({human(metric, bars[0])} to {human(metric, bars[1])})" if bars else "")


def by_turns(a: F64, b: F64) -> bool:
    """On the same machines now one, now the other is ahead: neither on fewer than a tenth of them."""
    return min(float(np.mean(a < b)), float(np.mean(a > b))) > BY_TURNS


def held(best: F64, others: Sequence[F64]) -> int:
    """On how many machines the best stays so, or within 1 % of it."""
    return sum(all(b <= o or same(b, o) for o in ones) for b, *ones in zip(best, *others, strict=True))


def flips(lines: Mapping[str, Sequence[Result]], metric: str) -> dict[Push, tuple[str, ...]]:
    """Which number of a profile, moved alone to an end of its interval, puts others ahead of all that are best; and which.

    Of times only: lines of one place have one reference, so slowdowns stand in the order of makespans.
    """
    runs = [r for there in lines.values() for r in there]
    places = {tuple(r.spec.get(key) for key in REFERENCE) for r in runs}
    if metric != "makespan_ns" and (metric != "slowdown" or len(places) > 1):
        return {}
    now = {name: m for name, there in lines.items() if (m := mean(there, "makespan_ns")) is not None}
    found = {}
    for push in dict.fromkeys(p for r in runs if r.sampled for p in r.sampled.pushed):
        pushed = {name: float(np.mean([_pushed(r, push) for r in lines[name]])) for name in now}
        ahead = _best(pushed)
        if ahead and ahead.isdisjoint(_best(now)):
            found[push] = tuple(name for name in pushed if name in ahead)
    return found


def _pushed(run: Result, push: Push) -> float:
    """The makespan under the push; as it was when the push cannot change the order."""
    makespan = float(run.metrics["makespan_ns"])
    return run.sampled.pushed.get(push, makespan) if run.sampled else makespan


def _best(makespans: Mapping[str, float]) -> set[str]:
    least = min(makespans.values())
    return {name for name, makespan in makespans.items() if same(makespan, least)}
