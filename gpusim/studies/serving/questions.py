"""A question about services as a YAML file: every list in it is an axis, and all combinations are served.

    question: What is host memory worth to conversations?
    service:
      model: llama-8b
      machine: [a100-pcie-40gb, h100-sxm-80gb]
      tiers: ["", host(64 GiB)]
    requests: chats(users=200)
    slo: ttft 1 s, tpot 100 ms
    find: rate

The keys of `service` are those of `setup.ServiceSpec`, the others those of `gpusim serve`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass as plain_dataclass
from dataclasses import fields
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BeforeValidator, Field
from pydantic.dataclasses import dataclass

from gpusim.base.errors import ConfigError, GpusimError
from gpusim.base.yaml import document, validate
from gpusim.base.yaml.document import Document
from gpusim.base.yaml.fields import STRICT, checked
from gpusim.programs.serving.requests import at_rate, check_word, requests_of
from gpusim.results.served import Objective
from gpusim.studies.questions import Axis, Count, Rate, Whole, rounded, several, words_of
from gpusim.studies.serving.answer import ServingAnswer, answer, objective
from gpusim.studies.serving.prices import HINT, prices_of
from gpusim.studies.serving.search import ATTAINMENT, find_rate, steady
from gpusim.studies.serving.setup import ServiceSpec, prepare


def _priced(value: Any) -> str | float:
    """A number, the words of `prices`, or a mapping from names to numbers."""
    found = ", ".join(f"{name}={price}" for name, price in value.items()) if isinstance(value, dict) else value
    if not isinstance(found, (str, float, int)):
        raise GpusimError(f"{found!r} is no price of a GPU hour", hint=HINT)
    prices_of(found)
    return found


@dataclass(frozen=True, config=STRICT, kw_only=True)
class ServiceAxes:
    """`ServiceSpec`, each field one value or several."""

    model: Axis[str]
    machine: Axis[str]
    engine: Axis[str] = ("vllm@0.33",)
    tensor: Axis[Count] = (1,)
    replicas: Axis[Whole] = (0,)
    prefill: Axis[Whole] = (0,)
    weights: Axis[str] = ("bf16",)
    cache: Axis[str] = ("bf16",)
    handed: Axis[str] = ("",)
    tiers: Axis[str] = ("",)
    when: Axis[str] = ("write_through",)
    block: Axis[Count] = (16,)
    max_seqs: Axis[Count] = (256,)
    max_tokens: Axis[Count] = (8192,)
    max_len: Axis[Whole] = (0,)
    offload: Axis[str] = ("",)
    lora: Axis[str] = ("",)
    memory: Axis[Annotated[float, Field(gt=0, le=1)]] = (0.9,)
    routing: Axis[Literal["least_busy", "round_robin", "least_tokens", "mixed_pool"]] = ("least_busy",)
    step_times: Axis[str] = ("",)
    beside: Axis[str] = ("",)
    tenancy: Axis[str] = ("time_slices",)


@dataclass(frozen=True, config=STRICT, kw_only=True)
class ServingQuestion:
    """The file; see the module."""

    question: Annotated[str, Field(min_length=1)]
    service: ServiceAxes
    requests: Axis[str]
    rate: Axis[Rate] = (0.0,)
    at_once: Axis[Whole] = (0,)
    slo: Annotated[Objective, BeforeValidator(checked(objective))] = Field(default_factory=Objective)
    find: Literal["", "rate"] = ""
    attainment: Annotated[float, Field(gt=0, le=1)] = ATTAINMENT
    price: Annotated[float | str, BeforeValidator(checked(_priced))] = 0.0
    seed: Whole = 0

    def axes(self) -> dict[str, tuple[Any, ...]]:
        """What has several values, in the order of the file's keys."""
        return several(words_of(self.service) | {name: getattr(self, name) for name in ("requests", "rate", "at_once")})


@plain_dataclass(frozen=True)
class ServedPoint:
    """One combination: the values of the axes, and what came of it, or why nothing did."""

    values: dict[str, Any]
    answer: ServingAnswer | None
    why: str = ""


def read(path: Path) -> ServingQuestion:
    """A question from its file.  Raises ConfigError with file:line:col."""
    return _checked(document.read(path))


def _checked(doc: Document) -> ServingQuestion:
    found = validate.build(ServingQuestion, doc)
    if found.find and found.slo == Objective():
        raise ConfigError([doc.problem(("find",), "there is no objective to keep", "slo: ttft 500 ms, tpot 50 ms")])
    if found.find and (any(found.rate) or any(found.at_once)):
        raise ConfigError([doc.problem(("find",), "the rate is what is searched for", "leave out rate and at_once")])
    return found


class Combination(NamedTuple):
    """One of a question's: a service, requests, at which rate or from how many clients, and the values of the axes."""

    spec: ServiceSpec
    requests: str
    rate: float
    at_once: int
    values: dict[str, Any]


def served(question: ServingQuestion) -> list[ServedPoint]:
    """All combinations, one after the other."""
    return [point_of(question, one) for one in combinations(question)]


def point_of(question: ServingQuestion, one: Combination) -> ServedPoint:
    """One combination; what cannot be served says why."""
    try:
        return ServedPoint(one.values, _one(question, one.spec, one.requests, one.rate, one.at_once))
    except GpusimError as error:
        return ServedPoint(one.values, None, error.message)


def combinations(question: ServingQuestion) -> Iterator[Combination]:
    """All of a question, in the order of its axes.  Raises GpusimError where there are no such requests."""
    for word in question.requests:
        check_word(word)
    names = [f.name for f in fields(question.service)]
    own = [getattr(question.service, name) for name in names]
    axes = question.axes()
    for values in product(*own, question.requests, question.rate, question.at_once):
        said = dict(zip((*names, "requests", "rate", "at_once"), values, strict=True))
        spec = ServiceSpec(**{name: said[name] for name in names})
        yield Combination(spec, said["requests"], said["rate"], said["at_once"], {name: said[name] for name in axes})


def _one(question: ServingQuestion, spec: ServiceSpec, word: str, rate: float, at_once: int) -> ServingAnswer:
    service, asked = prepare(spec), requests_of(word)
    search = None
    if question.find:
        search = find_rate(service, asked, question.slo, attainment=question.attainment, seed=question.seed, interval=False)
        asked = steady(asked, search.best, question.seed) if search.best else asked
    run = service.start(at_rate(asked, rate, question.seed) if rate else asked, at_once=at_once)
    run.advance()
    return answer(service, run, question.slo, search, question.price)


def row_of(point: ServedPoint, asked: ServingQuestion) -> dict[str, Any]:
    """The axes' values and the numbers by which combinations are compared; times in ms."""
    if point.answer is None:
        return {**point.values, "why not": point.why}
    numbers = point.answer.metrics()
    row = dict(point.values)
    if asked.find:
        row["rate [1/s]"] = numbers["best_rate_per_s"]
    if "attainment" in numbers:
        row["attainment"] = numbers["attainment"]
    row |= {f"{name} [ms]": numbers[f"{key}_ns"] / 1e6 for name, key in _NUMBERS.items()}
    row |= {"output [tokens/s]": numbers["output_tokens_per_s"], "preemptions": numbers["preemptions"]}
    if numbers["hit_share"] > 0 or numbers["tier_share"] > 0:
        row |= {"cached": numbers["hit_share"], "from tiers": numbers["tier_share"]}
    if numbers["handed_share"] > 0:
        row["handed over"] = numbers["handed_share"]
    if point.answer.beside is not None:
        row |= {f"beside {name} [ms]": numbers[f"beside_{key}_ns"] / 1e6 for name, key in _NUMBERS.items()}
        row["beside output [tokens/s]"] = numbers["beside_output_tokens_per_s"]
    if "cost_per_million_tokens" in numbers:
        row["cost of 1 M tokens"] = numbers["cost_per_million_tokens"]
    return rounded(row)


_NUMBERS = {"TTFT p50": "ttft_p50", "TTFT p99": "ttft_p99", "TPOT p50": "tpot_p50", "TPOT p99": "tpot_p99"}
