"""What a service does with its requests, in numbers and sentences: latencies, largest rate, what limits it, what it costs."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from gpusim.base.errors import GpusimError
from gpusim.base.text import join
from gpusim.base.units import parse_time
from gpusim.engine.serving.run import ServiceRun
from gpusim.machine.kernels.measured import measured_gpu
from gpusim.results.served import Objective, Served
from gpusim.studies.serving.prices import hourly
from gpusim.studies.serving.refusals import POOLED
from gpusim.studies.serving.search import RateSearch, overrun
from gpusim.studies.serving.setup import PreparedService

_OBJECTIVE = re.compile(r"\s*(ttft|tpot)\s+(.+?)\s*", re.IGNORECASE)
FULL = 0.95
"""Share from which on something counts as used up."""
WAIT = 0.1
"""Share of its latency that a request waits before it starts, from which on requests are said to wait."""


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
    price: float = 0.0  # of an hour of all its GPUs
    limit: str = field(default="")
    chosen: str = ""  # what a search for GPUs or tiers chose, and the rows of what it tried
    tried: tuple[dict[str, Any], ...] = ()
    records: Any = None  # engine.serving.tables.SERVED rows of a run that kept its log
    beside: ServingAnswer | None = None  # what became of the requests of the service on the same GPUs

    def metrics(self) -> dict[str, float]:
        """All numbers by name; see `results.served`, `cost_per_million_tokens` of the output in the currency of the price."""
        found = self.served.summary(self.slo if self.slo != Objective() else None)
        if self.price:
            tokens = found["output_tokens_per_s"] * 3600
            found["cost_per_million_tokens"] = self.price / tokens * 1e6 if tokens else float("nan")
        if self.search is not None:
            found |= {"best_rate_per_s": self.search.best, "alone_attainment": self.search.alone}
            if self.search.seeds:
                found |= {"slow_rate_per_s": self.search.slow, "fast_rate_per_s": self.search.fast}
        if self.beside is not None:
            found |= {f"beside_{name}": value for name, value in self.beside.metrics().items()}
        return found

    def emulated(self) -> str:
        """Where GPUs have no products in the type of the weights, in which type they are computed, as a sentence; else ""."""
        word, found = self.service.spec.weights.partition("_")[0], dict[str, str]()
        for group in self.service.groups:
            profile = self.service.topology.profile(group[0])
            found[profile.name] = measured_gpu(profile).numbers.rate(word)[1]
        by = {name: kind for name, kind in found.items() if word == "fp8" and kind != word}
        machines, kinds = join(sorted(by)), join(sorted(set(by.values())))
        return f"{machines} has no products in fp8: those with weights in fp8 are computed in {kinds}." if by else ""

    def kinds(self) -> list[dict[str, Any]]:
        """A row for the replicas of each kind and role; [] where all are alike.

        A prompt's last token is computed by the replica that goes on with it, too.
        """
        service, rows = self.service, dict[tuple[str, str], list[int]]()
        for i, _ in enumerate(service.groups):
            rows.setdefault((service.kind(i).name, service.role(i)), []).append(i)
        return [self._kind(*key, own) for key, own in rows.items()] if len(rows) > 1 else []

    def _kind(self, name: str, role: str, own: list[int]) -> dict[str, Any]:
        engines = [self.served.engines[i] for i in own]
        ns, full = max(self.served.makespan_ns, 1), self.served.kv_share()[own]
        return {
            "GPU": name, "computes": {"whole": "all", "prefill": "prompts", "decode": "tokens"}[role], "replicas": len(own),
            "busy": sum(e.busy_ns for e in engines) / ns / len(own),
            "prompt [tokens/s]": sum(e.prompt_tokens for e in engines) / ns * 1e9,
            "output [tokens/s]": sum(e.output_tokens for e in engines) / ns * 1e9,
            "blocks": sum(e.blocks for e in engines), "fullest": float(full.max()) if full.size else float("nan"),
        }  # fmt: skip

    def values(self) -> dict[str, Any]:
        """All that serving.json holds."""
        words = {name: getattr(self.service.spec, name) for name in type(self.service.spec).__dataclass_fields__}
        found: dict[str, Any] = {"service": words, "blocks": self.service.blocks, "replicas": len(self.service.groups)}
        found |= {"kinds": kinds} if (kinds := self.kinds()) else {}
        found |= {"metrics": self.metrics(), "limit": self.limit, "times_ns": self.times, "spread": self.spread}
        found["tiers"] = list(self.tiers)
        if self.service.offload is not None:
            found["offload"] = self.service.offload.said(self.times)
        if self.beside is not None:
            found["beside"] = self.beside.values()
        if self.chosen:
            found |= {"chosen": self.chosen, "tried": list(self.tried)}
        if self.search is not None:
            found["rates"] = [{"rate_per_s": p.rate, "attainment": p.attainment} for p in self.search.points]
        return found

    def searched(self) -> str:
        """What the search has found, as a sentence; "" without one."""
        search = self.search
        if self.chosen:
            return self.chosen
        if search is None:
            return ""
        if not search.best:
            return (
                f"No rate keeps the objectives: served one after the other, {search.alone:.1%} of the requests meet them, and "
                f"{search.attainment:.0%} have to. What follows are the requests as they come."
            )
        best = next(p for p in search.points if p.rate == search.best)
        if overrun(best, self.slo):
            served = best.served.summary()["requests_per_s"]
            return (
                f"Every rate keeps the objectives, which say nothing of how long requests wait: at {best.rate:.3g} requests a "
                f"second, of which {served:.3g} are served, {best.attainment:.1%} meet them."
            )
        fails = next((p for p in search.points if p.rate > search.best), None)
        beyond = f"; at {fails.rate:.3g} it is {fails.attainment:.1%}, {_misses(fails.served, self.slo)}" if fails else ""
        rate = f"Largest rate: {search.best:.3g} requests a second"
        said = f"{rate}, at which {best.attainment:.1%} meet the objectives{beyond}."
        if not search.seeds:
            return said
        low, high = min(search.best, *search.seeds), max(search.best, *search.seeds)
        if self.service.spec.step_times:
            return f"{said} Three draws of the arrivals give {low:.3g} to {high:.3g}; of given step times no error is known."
        between = f"between {search.slow:.3g} and {search.fast:.3g}"
        return (
            f"{said} Four times out of five it is {between}, as far as step times decide; three draws of the arrivals "
            f"give {low:.3g} to {high:.3g}."
        )


def _misses(served: Served, slo: Objective) -> str:
    """Which objective requests miss."""
    late, slow = (served.ttft_ns() > slo.ttft_ns).mean(), (served.tpot_ns() > slo.tpot_ns).mean()
    return f"where {late:.1%} miss that of the first token and {slow:.1%} that of further tokens"


def answer(
    service: PreparedService, run: ServiceRun, slo: Objective, search: RateSearch | None = None, price: str | float = 0.0
) -> ServingAnswer:
    """Of a run that has ended; see `prices` for the price of a GPU hour."""
    found = _answer(service, run, 0, slo, search, hourly(service, price))
    if service.beside is None:
        return found
    return replace(found, beside=_answer(service.beside[0], run, 1, Objective(), None, 0.0))


def _answer(
    service: PreparedService, run: ServiceRun, number: int, slo: Objective, search: RateSearch | None, price: float
) -> ServingAnswer:
    """Of one of the services of a run."""
    served, spent, times = run.result(number), run.spent(number), run.times(number)
    total = max(sum(one.ns for one in spent), 1)
    spread = sum(one.low for one in spent) / total, sum(one.high for one in spent) / total
    return ServingAnswer(
        service, served, slo, times, spread, () if number else tuple(_tiers(run)), search, price,
        _limit(service, served, times, search), records=run.records() if run.logs else None,
    )


def _limit(service: PreparedService, served: Served, times: dict[str, int], search: RateSearch | None) -> str:
    """What limits the service; after a search for its largest rate, what does at the next rate that was tried."""
    fails = search and next((p for p in search.points if p.rate > search.best > 0), None)
    if not fails:
        return limited_by(service, served, times)
    if limit := limited_by(service, fails.served, fails.times):
        return limit
    if service.spec.step_times:
        return "compute: steps take too long"
    return f"compute: steps take too long, and spend most of their time with {_most(fails.times)}"


def _most(times: dict[str, int]) -> str:
    """The part of steps that takes the longest."""
    return WORDS[max(times, key=lambda name: times[name])]


def _tiers(run: ServiceRun) -> list[dict[str, Any]]:
    rows = []
    for row, tier in zip(run.below.tier, run.tiers, strict=False):
        rows.append({
            "tier": tier.name, "chunks": int(row["capacity"]), "peak": int(row["peak"]), "stored": int(row["stored"]),
            "loaded": int(row["loaded"]), "evicted": int(row["evicted"]), "declined": int(row["declined"]),
        })  # fmt: skip
    return rows


def limited_by(service: PreparedService, served: Served, times: dict[str, int]) -> str:
    """What keeps the service from more, as a sentence; "" where requests hardly ever wait.

    A GPU that is busy is no limit: steps take hardly longer with more requests in them, until they do.
    """
    summary, samples = served.summary(), served.samples
    rows = max(samples["waiting"].shape[1], 1)
    waiting, running = (float(samples[name].sum()) / rows for name in ("waiting", "running"))
    # A mixed scheduler preempts tokens for prompts, whatever room there is.
    short = summary["preemptions"] and not service.spec.engine.startswith(POOLED)
    if short or (summary["kv_peak_share"] >= FULL and waiting >= 1):
        often = "once" if summary["preemptions"] == 1 else f"{summary['preemptions']:.0f} times"
        return (
            f"memory for keys and values: at the fullest {summary['kv_peak_share']:.0%} of the blocks are in use, "
            f"requests were preempted {often}"
        )
    queued, copied = (summary[f"{name}_mean_ns"] / summary["latency_mean_ns"] for name in ("queued", "waited"))
    if copied > max(WAIT, queued):
        return f"copies of keys and values: requests wait {copied:.0%} of their time for them"
    if waiting < 1 and queued <= WAIT:
        return ""
    if running >= FULL * service.spec.max_seqs * len(service.groups):
        return f"the scheduler's limit of {service.spec.max_seqs} requests at once"
    said = f"compute{_of_role(service, samples['waiting'])}: requests wait {queued:.0%} of their time"
    if service.spec.step_times:
        return said
    return f"{said}, and steps spend most of theirs with {_most(times)}"


def _of_role(service: PreparedService, waiting: Any) -> str:
    """Where more requests wait, of replicas for prompts and those for tokens."""
    if not service.spec.prefill:
        return ""
    for_prompts, for_tokens = (float(of.mean()) for of in np.split(waiting, [service.spec.prefill]))
    return " of the replicas for prompts" if for_prompts >= for_tokens else " of the replicas for tokens"


WORDS = {
    "gemm": "products with weights", "attention": "attention", "collectives": "collectives of tensor parallelism",
    "other": "norms, activations and sampling", "host": "waiting for the CPU", "cpu": "computing on the CPU",
    "copies": "copies of what lies below the GPU", "gpu": "computing on the GPU",
}  # fmt: skip
