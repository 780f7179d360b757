"""A service of requests: latencies, the largest rate within objectives, what limits it, what it costs."""

from __future__ import annotations

from typing import Any

from gpusim.base.errors import GpusimError
from gpusim.policies.registry import entry_of
from gpusim.programs.serving.requests import at_rate, requests_of
from gpusim.studies.serving.answer import ServingAnswer, answer, objective
from gpusim.studies.serving.search import ATTAINMENT, find_rate
from gpusim.studies.serving.setup import ServiceSpec, prepare


def serve(
    model: str, machine: str, requests: str, *, rate: float = 0.0, slo: str = "", find: str = "",
    attainment: float = ATTAINMENT, at_once: int = 0, count: int = 0, seed: int = 0, price: float = 0.0, **words: Any,
) -> ServingAnswer:  # fmt: skip
    """What `gpusim serve` prints.

    model, machine  llama-8b; a profile, `4 x l40s`, or a whole machine
    requests   a file of arrivals, or drawn(prompt=1024, output=128, requests=1000)
    rate       requests a second as a Poisson process from `seed`; 0.0: as the file has them, drawn ones all at once
    at_once    so many clients send them instead, each its next one when it is answered
    count      only so many requests, from the first
    slo        "ttft 500 ms, tpot 50 ms"; find="rate": the largest rate at which `attainment` of the requests meet it
    price      of a GPU hour
    words      the fields of `studies.serving.setup.ServiceSpec`: engine, tensor, replicas, weights, cache, tiers, when, ...;
               engine may also be a scheduler of your own, decorated with `gpusim.policy.schedule`

    Raises GpusimError, each with its reason.

    >>> import gpusim
    >>> found = gpusim.serve("llama-8b", "h100-sxm-80gb", "drawn(prompt=512, output=64, requests=50)", rate=4.0)
    >>> found.metrics()["finished"]
    50
    """
    if find not in ("", "rate"):
        raise GpusimError(f"'{find}' is not searched for", hint="rate")
    if rate and at_once:
        raise GpusimError("requests come at a rate, or from clients that wait for answers", hint="leave one of both out")
    unknown = sorted(set(words) - set(ServiceSpec.__dataclass_fields__))
    if unknown:
        raise GpusimError(f"a service has no '{unknown[0]}'", hint=", ".join(ServiceSpec.__dataclass_fields__))
    if (own := entry_of(words.get("engine"))) is not None:
        words |= {"use": (*words.get("use", ()), words["engine"]), "engine": own.name}
    service = prepare(ServiceSpec(model=model, machine=machine, **words))
    asked, kept = requests_of(requests, count or None), objective(slo)
    search = find_rate(service, asked, kept, attainment=attainment, seed=seed) if find else None
    if search is not None and search.best:
        rate = search.best
    run = service.start(at_rate(asked, rate, seed) if rate else asked, at_once=at_once)
    run.advance()
    return answer(service, run, kept, search, price)

