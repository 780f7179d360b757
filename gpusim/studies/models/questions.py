"""A question about many models as a YAML file: every list in it is an axis, and all combinations are run.

    question: How much host memory keeps first tokens within a second?
    models:
      models: llama-8b x 32
      machine: 4 x l40s
      pool: [64 GiB, 256 GiB]
      placement: [soonest, random]

The keys of `models` are those of `setup.ModelsSpec`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass

from gpusim.base.yaml import document, validate
from gpusim.base.yaml.fields import STRICT
from gpusim.studies import questions
from gpusim.studies.models.answer import ModelsAnswer
from gpusim.studies.models.setup import ModelsSpec, answered
from gpusim.studies.questions import Axis, Count, OfAxes, QuestionPoint, Rate, Whole, rounded


@dataclass(frozen=True, config=STRICT, kw_only=True)
class ModelsAxes:
    """`ModelsSpec`, each field one value or several; None: as by default."""

    models: Axis[str]
    machine: Axis[str]
    servers: Axis[Count] | None = None
    requests: Axis[str] | None = None
    rate: Axis[Rate] | None = None
    spread: Axis[Rate] | None = None
    skew: Axis[Rate] | None = None
    loader: Axis[str] | None = None
    pool: Axis[str] | None = None
    evict: Axis[str] | None = None
    keep: Axis[str] | None = None
    placement: Axis[Literal["soonest", "random"]] | None = None
    boot: Axis[str] | None = None
    engine: Axis[str] | None = None
    memory: Axis[Annotated[float, Field(gt=0, le=1)]] | None = None
    max_seqs: Axis[Count] | None = None
    max_tokens: Axis[Count] | None = None
    seed: Axis[Whole] | None = None


@dataclass(frozen=True, config=STRICT, kw_only=True)
class ModelsQuestion(OfAxes):
    """The file; see the module."""

    AXES: ClassVar[str] = "models"
    question: Annotated[str, Field(min_length=1)]
    models: ModelsAxes


def numbers_of(answer: ModelsAnswer) -> dict[str, Any]:
    """The numbers of a row, of four digits."""
    numbers = answer.metrics()
    row: dict[str, Any] = {
        "TTFT p50 [s]": numbers["ttft_p50_ns"] / 1e9, "TTFT p99 [s]": numbers["ttft_p99_ns"] / 1e9,
        "cold": numbers["cold_share"], "cold TTFT p50 [s]": numbers["cold_ttft_p50_ns"] / 1e9,
        "warm TTFT p50 [s]": numbers["warm_ttft_p50_ns"] / 1e9, "loads": int(numbers["loads"]),
        "from host": numbers["host_share"], "load p50 [s]": numbers["load_p50_ns"] / 1e9,
        "read [GB]": numbers["read_bytes"] / 1e9, "GPUs taken": numbers["gpu_busy_share"],
    }  # fmt: skip
    if numbers["rejected"]:
        row["rejected"] = int(numbers["rejected"])
    return rounded(row)


def read(path: Path) -> ModelsQuestion:
    """A question from its file.  Raises ConfigError with file:line:col."""
    return validate.build(ModelsQuestion, document.read(path))


def points(question: ModelsQuestion) -> list[QuestionPoint[ModelsAnswer]]:
    """All combinations, one after the other; what cannot be run says why."""
    return questions.points(question.words(), lambda words: answered(ModelsSpec(**words)), numbers_of)
