"""The largest rate at which a service keeps its objectives, by bisection over runs of the same requests."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from gpusim.base.errors import GpusimError
from gpusim.policies.schedule.parts.tables import RequestTable
from gpusim.programs.serving.drawn import SECOND
from gpusim.programs.serving.requests import at_rate
from gpusim.results.served import Objective, Served
from gpusim.studies.serving.setup import PreparedService

ATTAINMENT = 0.9
"""Share of the requests that have to meet the objectives."""
CLOSE = 1.03
"""The rate that is found and the next that fails differ by no more than this factor."""
MOST_RUNS = 40
NEAR = 1.15
"""By which factor slow and fast steps, or other arrivals, are first expected to change the rate."""
STEADY, MOST = 200.0, 300_000
"""A rate is tried for so many seconds, and no more than so many requests: a queue that grows must have the time to do so."""


@dataclass(frozen=True)
class RatePoint:
    """A service at one rate, requests a second."""

    rate: float
    served: Served
    attainment: float  # share of its requests that met the objectives
    times: dict[str, int]  # ns of all its steps by part


@dataclass(frozen=True)
class RateSearch:
    """Rates that were tried, in rising order.

    best   the largest that kept the objectives; 0.0: none does, as `alone` shows
    alone  share of the requests that meet them when they are served one after the other
    slow, fast  the largest where all steps take as long as their interval allows, and as short: four times out of five between
    seeds  the largest with other arrivals
    """

    points: tuple[RatePoint, ...]
    best: float
    alone: float
    slo: Objective
    attainment: float
    slow: float = math.nan
    fast: float = math.nan
    seeds: tuple[float, ...] = ()


def steady(requests: RequestTable, rate: float, seed: int) -> RequestTable:
    """The requests at this rate, for long enough."""
    return at_rate(requests, rate, seed, max(len(requests.arrival), min(math.ceil(rate * STEADY), MOST)))


def find_rate(
    service: PreparedService, requests: RequestTable, slo: Objective, *, attainment: float = ATTAINMENT, seed: int = 0,
    tell: Callable[[RatePoint], None] | None = None, interval: bool = True,
) -> RateSearch:  # fmt: skip
    """The largest rate, to 3 %, of a Poisson process at which so large a share of the requests meets the objectives.

    The same requests with the same gaps come faster or slower, so that rates differ in little else; where they are too few for
    `STEADY` seconds they come again.  With `interval` the search is made again around what it found, with slow and fast steps
    and with two other draws of the arrivals.
    A service on the same GPUs is there at all rates, but not when the requests are first served one after the other.
    Raises GpusimError without an objective.
    """
    if slo == Objective():
        raise GpusimError("there is no objective to keep", hint="--slo 'ttft 500 ms, tpot 50 ms'")
    one = replace(service, beside=None).start(requests, at_once=1)
    one.advance()
    served = one.result()
    alone = float(served.meets(slo).mean())
    if alone < attainment:
        return RateSearch((), 0.0, alone, slo, attainment)

    def search(of: PreparedService, guess: float, seed: int, known: dict[float, RatePoint], stretch: float) -> float:
        def keeps(rate: float) -> bool:
            run = of.start(steady(requests, rate, seed))
            run.advance()
            result = run.result()
            known[rate] = RatePoint(rate, result, float(result.meets(slo).mean()), run.times())
            if tell is not None:
                tell(known[rate])
            return known[rate].attainment >= attainment

        return bisected(keeps, guess, stretch, lambda rate: overrun(known[rate], slo))

    tried: dict[float, RatePoint] = {}
    guess = len(requests.arrival) * len(service.groups) / max(served.makespan_ns, 1) * SECOND
    best = search(service, guess, seed, tried, 2.0)
    found = RateSearch(tuple(tried[rate] for rate in sorted(tried)), best, alone, slo, attainment)
    if not interval or not best:
        return found
    slow, fast = (search(service.paced(bound), best, seed, {}, NEAR) for bound in ("slow", "fast"))
    return replace(found, slow=slow, fast=fast, seeds=tuple(search(service, best, seed + i, {}, NEAR) for i in (1, 2)))


def overrun(point: RatePoint, slo: Objective) -> bool:
    """Requests come more than twice as fast as they are served, and no objective limits how long they wait: where that
    rate keeps the objectives, every rate does."""
    served = float(point.served.finished.sum()) * SECOND / max(point.served.makespan_ns, 1)
    return slo.ttft_ns == math.inf and served < point.rate / 2


def bisected(
    keeps: Callable[[float], bool], guess: float, stretch: float, enough: Callable[[float], bool] = lambda rate: False
) -> float:
    """The largest rate that keeps what is asked, to 3 %; 0.0: none was found.

    guess, stretch  where it begins, and by which factor it goes on until one rate keeps it and one does not
    enough          of a rate that keeps it: larger ones do too
    """
    low, high, rate = 0.0, math.inf, guess
    for _ in range(MOST_RUNS):
        if high <= low * CLOSE:
            break
        if keeps(rate):
            low = rate
            if enough(rate):
                break
        else:
            high = rate
        rate = low * stretch if high == math.inf else (low + high) / 2 if low else high / stretch
    return low
