"""The largest rate at which a service keeps its objectives, by bisection over runs of the same requests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gpusim.base.errors import GpusimError
from gpusim.policies.schedule.parts.tables import RequestTable
from gpusim.programs.serving.requests import at_rate
from gpusim.results.served import Objective, Served
from gpusim.studies.serving.setup import PreparedService

ATTAINMENT = 0.99
"""Share of the requests that have to meet the objectives."""
STEPS = 12


@dataclass(frozen=True)
class RatePoint:
    """A service at one rate, requests a second."""

    rate: float
    served: Served

    def attainment(self, slo: Objective) -> float:
        """Share of its requests that met the objectives."""
        return float(self.served.meets(slo).mean())


@dataclass(frozen=True)
class RateSearch:
    """Rates that were tried, in rising order; `best` is the largest that kept the objectives, 0.0 where none did."""

    points: tuple[RatePoint, ...]
    best: float
    slo: Objective
    attainment: float


def find_rate(
    service: PreparedService, requests: RequestTable, slo: Objective, *, attainment: float = ATTAINMENT, seed: int = 0,
    tell: Callable[[RatePoint], None] | None = None,
) -> RateSearch:  # fmt: skip
    """The largest rate, to 3 %, of a Poisson process at which so large a share of the requests meets the objectives.

    The same requests with the same gaps come faster or slower, so that rates differ in nothing else.
    Raises GpusimError without an objective.
    """
    if slo == Objective():
        raise GpusimError("there is no objective to keep", hint="--slo 'ttft 500 ms, tpot 50 ms'")
    tried: dict[float, RatePoint] = {}

    def keeps(rate: float) -> bool:
        run = service.start(at_rate(requests, rate, seed))
        run.advance()
        tried[rate] = RatePoint(rate, run.result())
        if tell is not None:
            tell(tried[rate])
        return tried[rate].attainment(slo) >= attainment

    low, high, rate = 0.0, float("inf"), 1.0
    for _ in range(STEPS):
        if keeps(rate):
            low = rate
        else:
            high = rate
        if low and high <= low * 1.03:
            break
        rate = low * 2 if high == float("inf") else (low + high) / 2 if low else high / 4
    return RateSearch(tuple(tried[rate] for rate in sorted(tried)), low, slo, attainment)
