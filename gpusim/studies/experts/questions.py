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

from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field
from pydantic.dataclasses import dataclass

from gpusim.base.yaml import document, validate
from gpusim.base.yaml.fields import STRICT
from gpusim.engine.serving.expert_run import Start
from gpusim.studies import questions
from gpusim.studies.experts.setup import ExpertAnswer, ExpertSpec, answered, like
from gpusim.studies.questions import Axis, Count, OfAxes, QuestionPoint, Whole, rounded


def _text(value: Any) -> Any:
    """Bare numbers of experts are words, too."""
    return tuple(str(one) if isinstance(one, int) else one for one in (value if isinstance(value, list) else [value]))


Texts = Annotated[tuple[str, ...], BeforeValidator(_text), Field(min_length=1)]


@dataclass(frozen=True, config=STRICT, kw_only=True)
class ExpertAxes:
    """`ExpertSpec`, each field one value or several; None: as the system has it, or as by default."""

    model: Axis[str]
    machine: Axis[str]
    like: Axis[str] = ("",)
    routing: Axis[str] | None = None
    batch: Axis[Count] | None = None
    cache: Texts | None = None
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
    seed: Axis[Whole] | None = None


@dataclass(frozen=True, config=STRICT, kw_only=True)
class ExpertQuestion(OfAxes):
    """The file; see the module."""

    AXES: ClassVar[str] = "experts"
    question: Annotated[str, Field(min_length=1)]
    experts: ExpertAxes


def numbers_of(answer: ExpertAnswer) -> dict[str, Any]:
    """The numbers of a row, of four digits."""
    numbers = answer.metrics()
    row = {
        "slots": numbers["slots"], "tokens/s": numbers["tokens_per_s"], "token [ms]": numbers["token_ns"] / 1e6,
        "token p99 [ms]": numbers["token_p99_ns"] / 1e6, "hit": numbers["hit_share"], "late": numbers["late_share"],
        "on CPU": numbers["cpu_share"], "link [GB]": numbers["link_bytes"] / 1e9,
        "GPU memory [GB]": numbers["memory_bytes"] / 1e9,
    }  # fmt: skip
    return rounded(row)


def read(path: Path) -> ExpertQuestion:
    """A question from its file.  Raises ConfigError with file:line:col."""
    return validate.build(ExpertQuestion, document.read(path))


def points(question: ExpertQuestion) -> list[QuestionPoint[ExpertAnswer]]:
    """All combinations, one after the other; what cannot be run says why."""
    return questions.points(question.words(), _answered, numbers_of)


def _answered(words: dict[str, Any]) -> ExpertAnswer:
    given = {name: value for name, value in words.items() if name != "like"}
    return answered(ExpertSpec(**like(words["like"]) | given))
