"""How many GPUs, or which memory below them for keys and values, a rate of requests needs.

    gpus      replicas of the service, from one to as many as the machine has room for, halving the range
    kv_tier   no tier, then each tier of the chain as the last one, at parts of its size and whole
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from gpusim.base.errors import GpusimError
from gpusim.policies.schedule.parts.tables import RequestTable
from gpusim.results.served import Objective
from gpusim.studies.serving.answer import ServingAnswer, answer
from gpusim.studies.serving.search import ATTAINMENT
from gpusim.studies.serving.setup import PreparedService, ServiceSpec, prepare
from gpusim.studies.serving.tier_words import tiers_of

PARTS = (16, 4, 1)
"""A tier is tried with its size divided by each."""
CLOSE = 1.05
"""Without objectives the smallest tier is chosen whose 99th percentile of the first token is within this of the best one."""


@dataclass(frozen=True)
class ServingChoice:
    """What was tried, and the choice.

    tried  (words, answer) in rising order of cost
    best   the place in `tried` of the smallest that does; -1: none does
    """

    find: str
    tried: tuple[tuple[dict[str, Any], ServingAnswer], ...]
    best: int

    def rows(self) -> list[dict[str, Any]]:
        """A row of numbers for each; times in ms."""
        rows = []
        for i, (words, found) in enumerate(self.tried):
            m = found.metrics()
            row = {**words, "TTFT p50 [ms]": m["ttft_p50_ns"] / 1e6, "TTFT p99 [ms]": m["ttft_p99_ns"] / 1e6,
                   "TPOT p99 [ms]": m["tpot_p99_ns"] / 1e6, "from tiers": m["tier_share"]}  # fmt: skip
            row |= {name: m[key] for name, key in _SHOWN.items() if key in m}
            rows.append({**row, "": "<-" if i == self.best else ""})
        return rows

    def said(self) -> str:
        """The choice as a sentence."""
        if self.best < 0:
            most = max(found.metrics().get("attainment", 0.0) for _, found in self.tried)
            return f"None of them keeps the objectives: the best has {most:.1%} of the requests within them."
        words = ", ".join(f"{value} {name if value > 1 else name.removesuffix('s')}" if isinstance(value, int)
                          else str(value or "no tier") for name, value in self.tried[self.best][0].items())  # fmt: skip
        if self.tried[self.best][1].slo == Objective():
            return f"{words}: the smallest whose 99th percentile of the first token is within {CLOSE - 1:.0%} of the best."
        return f"{words}: the {'fewest that keep' if self.find == 'gpus' else 'smallest that keeps'} the objectives."


_SHOWN = {"attainment": "attainment", "cost of 1 M tokens": "cost_per_million_tokens"}


def find_gpus(
    spec: ServiceSpec, requests: RequestTable, slo: Objective, *, attainment: float = ATTAINMENT, price: str | float = 0.0
) -> ServingChoice:
    """The fewest GPUs of the machine that keep the objectives.  Raises GpusimError without one."""
    if slo == Objective():
        raise GpusimError("there is no objective to keep", hint="--slo 'ttft 500 ms, tpot 50 ms'")
    most = len(prepare(replace(spec, replicas=0)).groups)
    found: dict[int, ServingAnswer] = {}

    def keeps(replicas: int) -> bool:
        found[replicas] = _served(prepare(replace(spec, replicas=replicas)), requests, slo, price)
        return bool(found[replicas].metrics()["attainment"] >= attainment)

    best = smallest(keeps, 1 + spec.prefill, most)
    rows = tuple(({"GPUs": count * spec.tensor}, found[count]) for count in sorted(found))
    return ServingChoice("gpus", rows, sorted(found).index(best) if best else -1)


def smallest(keeps: Callable[[int], bool], low: int, high: int) -> int:
    """The smallest of the numbers from `low` to `high` that keeps what larger ones keep too; 0: none does."""
    if not keeps(high):
        return 0
    while low < high:
        middle = (low + high) // 2
        if keeps(middle):
            high = middle
        else:
            low = middle + 1
    return high


def find_tier(
    spec: ServiceSpec, requests: RequestTable, slo: Objective, *, attainment: float = ATTAINMENT, price: str | float = 0.0
) -> ServingChoice:
    """The smallest part of the chain of tiers that keeps the objectives, or is as good as any.  Raises GpusimError."""
    if not spec.tiers:
        raise GpusimError("there are no tiers to choose from", hint="--tiers 'host(256 GiB) > nvme(2 TB)'")
    tried = tuple(
        ({"tiers": words}, _served(prepare(replace(spec, tiers=words)), requests, slo, price)) for words in _parts(spec.tiers)
    )
    metrics = [found.metrics() for _, found in tried]
    if slo != Objective():
        does = [m["attainment"] >= attainment for m in metrics]
    else:
        least = min(m["ttft_p99_ns"] for m in metrics)
        does = [m["ttft_p99_ns"] <= CLOSE * least for m in metrics]
    return ServingChoice("kv_tier", tried, does.index(True) if True in does else -1)


def _parts(chain: str) -> Iterator[str]:
    tiers = tiers_of(chain)
    yield ""
    for last in range(len(tiers)):
        for part in PARTS:
            yield " > ".join(tier.text() for tier in (*tiers[:last], replace(tiers[last], size=tiers[last].size // part)))


def _served(service: PreparedService, requests: RequestTable, slo: Objective, price: str | float) -> ServingAnswer:
    run = service.start(requests)
    run.advance()
    return answer(service, run, slo, None, price)
