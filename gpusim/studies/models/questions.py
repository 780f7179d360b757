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

from dataclasses import dataclass as plain_dataclass
from dataclasses import fields
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass

from gpusim.base.errors import GpusimError
from gpusim.base.yaml import document, validate
from gpusim.base.yaml.fields import STRICT
from gpusim.studies.models.answer import ModelsAnswer
from gpusim.studies.models.setup import ModelsSpec, answered
from gpusim.studies.serving.questions import Axis, Count, Rate


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
    seed: Axis[Annotated[int, Field(ge=0)]] | None = None


@dataclass(frozen=True, config=STRICT, kw_only=True)
class ModelsQuestion:
    """The file; see the module."""

    question: Annotated[str, Field(min_length=1)]
    models: ModelsAxes

    def words(self) -> dict[str, tuple[Any, ...]]:
        """What is said, in the order of the file's keys."""
        found = {f.name: getattr(self.models, f.name) for f in fields(self.models)}
        return {name: values for name, values in found.items() if values is not None}

    def axes(self) -> dict[str, tuple[Any, ...]]:
        """What of it has several values."""
        return {name: values for name, values in self.words().items() if len(values) > 1}


@plain_dataclass(frozen=True)
class ModelsPoint:
    """One combination: the values of the axes, and what came of it, or why nothing did."""

    values: dict[str, Any]
    answer: ModelsAnswer | None
    why: str = ""

    def row(self) -> dict[str, Any]:
        """The axes' values and the numbers by which combinations are compared."""
        return {**self.values, **(numbers_of(self.answer) if self.answer is not None else {"why not": self.why})}


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
    return {name: float(f"{value:.4g}") if isinstance(value, float) else value for name, value in row.items()}


def read(path: Path) -> ModelsQuestion:
    """A question from its file.  Raises ConfigError with file:line:col."""
    return validate.build(ModelsQuestion, document.read(path))


def combinations(question: ModelsQuestion) -> list[dict[str, Any]]:
    """The words of all, in the order of the axes."""
    said = question.words()
    return [dict(zip(said, values, strict=True)) for values in product(*said.values())]


def points(question: ModelsQuestion) -> list[ModelsPoint]:
    """All combinations, one after the other; what cannot be run says why."""
    return [_point(words, question) for words in combinations(question)]


def _point(words: dict[str, Any], question: ModelsQuestion) -> ModelsPoint:
    values = {name: words[name] for name in question.axes()}
    try:
        return ModelsPoint(values, answered(ModelsSpec(**words)))
    except GpusimError as error:
        return ModelsPoint(values, None, error.message)
