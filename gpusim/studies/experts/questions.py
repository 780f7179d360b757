"""A question about experts as a YAML file: every list in it is an axis, and all combinations are run.

    question: How many experts have to be on the GPU?
    experts:
      model: mixtral-8x7b
      machine: rtx-6000-ada
      bits: 4
      cache: [10 %, 50 %, 100 %]
      evict: [lru, belady]

The keys of `experts` are those of `setup.ExpertSpec`, and `like`: a system whose words are taken where the file has none.
"""

from __future__ import annotations

from dataclasses import dataclass as plain_dataclass
from dataclasses import fields
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field
from pydantic.dataclasses import dataclass

from gpusim.base.errors import GpusimError
from gpusim.base.yaml import document, validate
from gpusim.base.yaml.fields import STRICT
from gpusim.engine.serving.expert_run import Start
from gpusim.studies.experts.setup import ExpertAnswer, ExpertSpec, answered, like
from gpusim.studies.serving.questions import Axis, Count


def _text(value: Any) -> Any:
    """Bare numbers of experts are words, too."""
    return tuple(str(one) if isinstance(one, int) else one for one in (value if isinstance(value, list) else [value]))


Words = Annotated[tuple[str, ...], BeforeValidator(_text), Field(min_length=1)]


@dataclass(frozen=True, config=STRICT, kw_only=True)
class ExpertAxes:
    """`ExpertSpec`, each field one value or several; None: as the system has it, or as by default."""

    model: Axis[str]
    machine: Axis[str]
    like: Axis[str] = ("",)
    routing: Axis[str] | None = None
    batch: Axis[Count] | None = None
    cache: Words | None = None
    evict: Axis[str] | None = None
    start: Axis[Start] | None = None
    guess: Axis[str] | None = None
    cpu: Axis[str] | None = None
    overlap: Axis[bool] | None = None
    swaps: Axis[bool] | None = None
    plain: Axis[Literal["resident", "streamed"]] | None = None
    source_memory: Axis[Literal["pinned", "pageable", "nvme"]] | None = None
    uses: Axis[Literal["chosen", "all"]] | None = None
    bits: Axis[Count] | None = None
    memory: Axis[Annotated[float, Field(gt=0, le=1)]] | None = None
    seed: Axis[Annotated[int, Field(ge=0)]] | None = None


@dataclass(frozen=True, config=STRICT, kw_only=True)
class ExpertQuestion:
    """The file; see the module."""

    question: Annotated[str, Field(min_length=1)]
    experts: ExpertAxes

    def axes(self) -> dict[str, tuple[Any, ...]]:
        """What has several values, in the order of the file's keys."""
        found = {f.name: getattr(self.experts, f.name) for f in fields(self.experts)}
        return {name: values for name, values in found.items() if values is not None and len(values) > 1}


@plain_dataclass(frozen=True)
class ExpertPoint:
    """One combination: the values of the axes, and what came of it, or why nothing did."""

    values: dict[str, Any]
    answer: ExpertAnswer | None
    why: str = ""

    def row(self) -> dict[str, Any]:
        """The axes' values and the numbers by which combinations are compared."""
        return {**self.values, **(numbers_of(self.answer) if self.answer is not None else {"why not": self.why})}


def numbers_of(answer: ExpertAnswer) -> dict[str, Any]:
    """The numbers of a row, of four digits."""
    numbers = answer.metrics()
    row = {
        "slots": numbers["slots"], "tokens/s": numbers["tokens_per_s"], "token [ms]": numbers["token_ns"] / 1e6,
        "token p99 [ms]": numbers["token_p99_ns"] / 1e6, "hit": numbers["hit_share"], "late": numbers["late_share"],
        "on CPU": numbers["cpu_share"], "link [GB]": numbers["link_bytes"] / 1e9,
        "GPU memory [GB]": numbers["memory_bytes"] / 1e9,
    }  # fmt: skip
    return {name: float(f"{value:.4g}") if isinstance(value, float) else value for name, value in row.items()}


def read(path: Path) -> ExpertQuestion:
    """A question from its file.  Raises ConfigError with file:line:col."""
    return validate.build(ExpertQuestion, document.read(path))


def points(question: ExpertQuestion) -> list[ExpertPoint]:
    """All combinations, one after the other; what cannot be run says why."""
    return [_point(words, question) for words in combinations(question)]


def combinations(question: ExpertQuestion) -> list[dict[str, Any]]:
    """The words of all, in the order of the axes."""
    said = {f.name: getattr(question.experts, f.name) for f in fields(question.experts)}
    said = {name: values for name, values in said.items() if values is not None}
    return [dict(zip(said, values, strict=True)) for values in product(*said.values())]


def _point(words: dict[str, Any], question: ExpertQuestion) -> ExpertPoint:
    values = {name: words[name] for name in question.axes()}
    try:
        given = {name: value for name, value in words.items() if name != "like"}
        return ExpertPoint(values, answered(ExpertSpec(**like(words["like"]) | given)))
    except GpusimError as error:
        return ExpertPoint(values, None, error.message)
