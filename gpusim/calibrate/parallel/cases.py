"""The published steps: one model, machine, layout and batch each, with what was measured and where to read it."""

from __future__ import annotations

import hashlib
from dataclasses import field
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, StrictInt
from pydantic.dataclasses import dataclass

from gpusim.base.errors import GpusimError, suggest
from gpusim.base.yaml import document, validate
from gpusim.base.yaml.fields import STRICT
from gpusim.programs.ranks.layout import RankLayout, parse_layout

DATA = Path(__file__).parents[1] / "data" / "parallel_published.yaml"
Count = Annotated[StrictInt, Field(ge=1)]


@dataclass(frozen=True, config=STRICT)
class PublishedModel:
    """A model's shapes: the family of the zoo that has its blocks, and the arguments of that family's Model."""

    family: str
    config: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, config=STRICT)
class ParallelCase:
    """One published step and its configuration."""

    name: str
    source: str
    """A key of the file's table `sources`."""
    system: str
    model: str
    """A key of the file's table `models`."""
    machine: str
    """As `gpusim machines` takes it."""
    layout: str
    """As `programs.ranks.layout` reads it; `microbatches` stands apart."""
    batch: Count
    """Samples of a microbatch, on each data-parallel rank."""
    microbatches: Count
    """Forward and backward passes of a rank before each optimizer step."""
    seq: Annotated[StrictInt, Field(ge=0)]
    """Tokens of a sample; 0: it has none."""
    precision: Literal["bf16", "fp16", "autocast-fp16"]
    """Of parameters in forward and backward; the optimizer keeps fp32 copies, under autocast the parameters are fp32."""
    reduced: Literal["bf16", "fp16", "fp32"]
    """Type in which gradients are exchanged."""
    recompute: Literal["none", "all", "every second"]
    """Blocks whose activations are not kept."""
    measured: Annotated[float, Field(gt=0)]
    unit: Literal["tokens/s/GPU", "samples/s", "s/step", "TFLOP/s/GPU"]

    @property
    def held_out(self) -> bool:
        """Drawn, by its name alone, before any simulation was written: scored once, at the end."""
        return int(hashlib.sha256(self.name.encode()).hexdigest(), 16) % 2 == 0

    @property
    def degrees(self) -> RankLayout:
        """The layout without its microbatches."""
        return parse_layout(self.layout)

    @property
    def samples(self) -> int:
        """Of one step on all ranks."""
        return self.batch * self.microbatches * self.degrees.data

    @property
    def step_s(self) -> float:
        """Measured seconds of one optimizer step."""
        ranks = self.degrees.ranks
        if self.unit == "s/step":
            return self.measured
        if self.unit == "samples/s":
            return self.samples / self.measured
        if self.unit == "tokens/s/GPU":
            return self.samples * self.seq / (self.measured * ranks)
        return self.samples * _hardware_flops(shapes(self), self.seq) / (self.measured * 1e12 * ranks)


def _hardware_flops(config: dict[str, Any], seq: int) -> float:
    """Of one sample with recomputation, as the source of these cases counts them: products of matrices, all of attention.

    Source: dlrover, atorch/examples/llama2/example_utils.py, compute_llama2_training_flops.
    """
    width, hidden = config["width"], config["hidden"]
    layer = 8 * seq * width**2 + 4 * seq**2 * width + 6 * seq * width * hidden
    return float(4 * config["layers"] * layer + 3 * 2 * seq * width * config["vocabulary"])


@dataclass(frozen=True, config=STRICT)
class PublishedSteps:
    """The file: where its numbers were published, the models' shapes, and the cases."""

    sources: dict[str, str]
    models: dict[str, PublishedModel]
    cases: list[ParallelCase] = field(default_factory=list)


def load(path: Path = DATA) -> PublishedSteps:
    """A file of published steps.

    Raises ConfigError for keys that are unknown or missing and for values out of range, GpusimError for two cases of one name,
    a layout that is none, and a source or a model that the file does not list.
    """
    published = validate.build(PublishedSteps, document.read(path))
    names: set[str] = set()
    for case in published.cases:
        if case.name in names:
            raise GpusimError(f"two cases are called '{case.name}'", where=str(path))
        names.add(case.name)
        for key, table in (("source", published.sources), ("model", published.models)):
            named = getattr(case, key)
            if named not in table:
                raise GpusimError(
                    f"case '{case.name}' has the {key} '{named}', which is not in `{key}s`", where=str(path),
                    hint=suggest(named, table),
                )  # fmt: skip
        if case.degrees.microbatches != 1:
            raise GpusimError(f"the layout of case '{case.name}' names microbatches, which have a key", where=str(path))
    return published


@cache
def shipped() -> PublishedSteps:
    """The steps that come with the program."""
    return load()


def shapes(case: ParallelCase) -> dict[str, Any]:
    """Arguments of the model of a shipped case."""
    return dict(shipped().models[case.model].config)


def visible() -> list[ParallelCase]:
    """The shipped cases that may be looked at while a simulation of them is written."""
    return [case for case in shipped().cases if not case.held_out]
