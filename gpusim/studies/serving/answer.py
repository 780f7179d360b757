"""What a service does with its requests, as numbers and sentences: latencies, the largest rate, what limits it, what it costs."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gpusim.base.errors import GpusimError
from gpusim.base.units import parse_time
from gpusim.engine.serving.run import ServiceRun
from gpusim.results.served import Objective, Served
from gpusim.studies.serving.search import RateSearch
from gpusim.studies.serving.setup import PreparedService

_OBJECTIVE = re.compile(r"\s*(ttft|tpot)\s+(.+?)\s*", re.IGNORECASE)
FULL = 0.95
"""Share from which on something counts as used up."""


def objective(text: str) -> Objective:
    """"ttft 500 ms, tpot 50 ms".  Raises GpusimError."""
    found: dict[str, float] = {}
    for part in filter(None, (p.strip() for p in text.split(","))):
        match = _OBJECTIVE.fullmatch(part)
        if match is None:
            raise GpusimError(f"'{part}' is no objective", hint="write ttft 500 ms, tpot 50 ms")
        found[f"{match[1].lower()}_ns"] = parse_time(match[2])
    return Objective(**found)


@dataclass(frozen=True)
class ServingAnswer:
    """One run of a service, and the search for its largest rate if there was one.

    times   ns of all steps by part, summed over the replicas
    spread  between which multiples of their time the steps are, four times out of five
    """

    service: PreparedService
    served: Served
    slo: Objective
    times: dict[str, int]
    spread: tuple[float, float]
    tiers: tuple[dict[str, Any], ...]
    search: RateSearch | None = None
    price: float = 0.0  # of a GPU hour
    limit: str = field(default="")

    def metrics(self) -> dict[str, float]:
        """All numbers by name; see `results.served`, `cost_per_million_tokens` of the output in the currency of the price."""
        found = self.served.summary(self.slo if self.slo != Objective() else None)
        if self.price:
            gpus = len(self.service.groups) * self.service.spec.tensor
            tokens = found["output_tokens_per_s"] * 3600
            found["cost_per_million_tokens"] = self.price * gpus / tokens * 1e6 if tokens else float("nan")
        if self.search is not None:
            found |= {"best_rate_per_s": self.search.best, "alone_attainment": self.search.alone}
        return found


def answer(
    service: PreparedService, run: ServiceRun, slo: Objective, search: RateSearch | None = None, price: float = 0.0
) -> ServingAnswer:
    """Of a run that has ended."""
    served = run.result()
    costs: list[Any] = [engine.cost for engine in run.engines]
    parts = [cost.parts() for cost in costs]
    times = {name: sum(part[name] for part in parts) for name in parts[0]}
    low, high = (float(np.mean(bounds)) for bounds in zip(*(cost.interval() for cost in costs), strict=True))
    return ServingAnswer(
        service, served, slo, times, (low, high), tuple(_tiers(run)), search, price, limited_by(service, served, times)
    )


def _tiers(run: ServiceRun) -> list[dict[str, Any]]:
    rows = []
    for row, tier in zip(run.below.tier, run.tiers, strict=False):
        rows.append({
            "tier": tier.name, "chunks": int(row["capacity"]), "peak": int(row["peak"]), "stored": int(row["stored"]),
            "loaded": int(row["loaded"]), "evicted": int(row["evicted"]), "declined": int(row["declined"]),
        })  # fmt: skip
    return rows


def limited_by(service: PreparedService, served: Served, times: dict[str, int]) -> str:
    """What keeps the service from more, as a sentence; "" where nothing is used up."""
    summary, samples = served.summary(), served.samples
    waits = float((samples["waiting"] * samples["running"]).sum()) > 0
    if summary["preemptions"] or (summary["kv_peak_share"] >= FULL and waits):
        return (
            f"memory for keys and values: at the fullest {summary['kv_peak_share']:.0%} of the blocks are in use, "
            f"{summary['preemptions']:.0f} requests were preempted"
        )
    if samples["running"].size and samples["running"].max() >= FULL * service.spec.max_seqs:
        return f"the scheduler's limit of {service.spec.max_seqs} requests at once"
    if summary["busy_share"] < FULL:
        return ""
    part = max(times, key=lambda name: times[name])
    return f"compute: the GPUs are busy {summary['busy_share']:.0%} of the time, most of it with {WORDS[part]}"


WORDS = {
    "gemm": "products with weights", "attention": "attention", "collectives": "collectives of tensor parallelism",
    "other": "norms, activations and sampling", "host": "waiting for the CPU",
}  # fmt: skip
