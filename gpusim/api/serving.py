"""A service of requests: latencies, the largest rate within objectives, what limits it, what it costs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from gpusim.api.words import spec_words
from gpusim.base.errors import GpusimError
from gpusim.base.text import join
from gpusim.base.yaml import find
from gpusim.programs.serving.requests import at_rate, requests_of
from gpusim.studies.bounds import check_bounds
from gpusim.studies.serving.answer import ServingAnswer, answer, objective
from gpusim.studies.serving.choices import find_gpus, find_tier
from gpusim.studies.serving.folder import answered
from gpusim.studies.serving.questions import ServingQuestion, read, row_of, served
from gpusim.studies.serving.search import ATTAINMENT, find_rate, steady
from gpusim.studies.serving.setup import ServiceSpec, prepare

CHOICES = {"gpus": find_gpus, "kv_tier": find_tier}
FINDS = ("rate", *CHOICES)
BOUNDS = {"rate": (0.0, 1e9), "at_once": (0, None), "count": (0, None), "seed": (0, None), "attainment": (0.0, 1.0)}


def serve(
    model: str, machine: str, requests: str, *, rate: float = 0.0, slo: str = "", find: str | None = None,
    attainment: float = ATTAINMENT, at_once: int = 0, count: int = 0, seed: int = 0, price: str | float = 0.0,
    log: bool = False, **words: Any,
) -> ServingAnswer:  # fmt: skip
    """What `gpusim serve` prints.

    model, machine  llama-8b; a profile, `4 x l40s`, or a whole machine
    requests   a file of arrivals, or drawn(prompt=1024, output=128, requests=1000)
    rate       requests a second as a Poisson process from `seed`; 0.0: as the file has them, drawn ones all at once
    at_once    so many clients send them instead, each its next one when it is answered
    count      only so many requests, from the first
    slo        "ttft 500 ms, tpot 50 ms"
    find       "rate": the largest rate at which `attainment` of the requests meet it; "gpus": the fewest that do at this rate;
               "kv_tier": the smallest part of `tiers` that does, or that is as good as any; "none": nothing, requests are
               served as they come; None: the rate where there is an `slo`, and neither `rate` nor `at_once`
    price      of a GPU hour: 2.5, or by the beginning of a GPU's name: "h100=2.5, a100=1.2"
    log        keep what happens to each request (`records` of the answer), for the page of `gpusim serve --log`
    words      the fields of `studies.serving.setup.ServiceSpec`: engine, tensor, replicas, weights, cache, tiers, when, ...;
               engine may also be a scheduler of your own, decorated with `gpusim.policy.schedule`

    Raises GpusimError, each with its reason.

    >>> import gpusim
    >>> found = gpusim.serve("llama-8b", "h100-sxm-80gb", "drawn(prompt=512, output=64, requests=50)", rate=4.0)
    >>> found.metrics()["finished"]
    50
    """
    numbers = {"rate": rate, "at_once": at_once, "count": count, "seed": seed, "attainment": attainment}
    check_bounds(numbers, "a service", BOUNDS)
    if find is None:
        find = "rate" if slo and not rate and not at_once else ""
    find = "" if find == "none" else find
    if find and find not in FINDS:
        raise GpusimError(f"'{find}' is not searched for", hint=join(FINDS))
    if find == "rate" and (rate or at_once):
        raise GpusimError("the rate is what is searched for", hint="leave out --rate and --at-once")
    if find in CHOICES and at_once:
        said = f"a search for {find} needs requests that come whatever is answered"
        raise GpusimError(said, hint="--rate instead of --at-once")
    if log and find in CHOICES:
        raise GpusimError(f"a search for {find} keeps no log", hint="serve what it finds, with --log")
    if rate and at_once:
        raise GpusimError("requests come at a rate, or from clients that wait for answers", hint="leave one of both out")
    words = spec_words(words, ServiceSpec, "a service has", "engine")
    spec = ServiceSpec(model=model, machine=machine, **words)
    asked, kept = requests_of(requests, count or None), objective(slo)
    if find in CHOICES:
        choice = CHOICES[find](spec, steady(asked, rate, seed) if rate else asked, kept, attainment=attainment, price=price)
        return replace(choice.tried[choice.best][1], chosen=choice.said(), tried=tuple(choice.rows()))
    service = prepare(spec)
    search = find_rate(service, asked, kept, attainment=attainment, seed=seed) if find else None
    if search is not None and search.best:
        asked = steady(asked, search.best, seed)
    run = service.start(at_rate(asked, rate, seed) if rate else asked, at_once=at_once, log=log)
    run.advance()
    return answer(service, run, kept, search, price)


def serve_question(
    word: str, out: Path | None = None, *, jobs: int = 1, force: bool = False
) -> tuple[ServingQuestion, list[dict[str, Any]]]:
    """The question of a file, or of one that ships, and a row of numbers for each combination of its axes.

    out, jobs, force  a folder that keeps each combination, and has those that it holds already; worker processes; do all again
    Raises ConfigError with file:line:col.
    """
    asked = read(find.find("serving question", word, None))
    if out is None:
        return asked, [row_of(point, asked) for point in served(asked)]
    return asked, answered(asked, out, jobs=jobs, force=force)
