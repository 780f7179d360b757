"""The published cases: one system, machine, model and workload each, with what was measured and where to read it."""

from __future__ import annotations

import hashlib
from dataclasses import field
from functools import cache
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, StrictBool, StrictInt
from pydantic.dataclasses import dataclass

from gpusim.base.errors import GpusimError, suggest
from gpusim.base.yaml import document, validate
from gpusim.base.yaml.fields import STRICT

DATA = Path(__file__).parents[1] / "data" / "offload_published.yaml"
Count = Annotated[StrictInt, Field(ge=1)]
Share = Annotated[float, Field(ge=0, le=1)]
Known = Literal["yes", "no", "unstated"]


@dataclass(frozen=True, config=STRICT)
class OffloadCase:
    """One published measurement and its configuration."""

    name: str
    source: str
    """A key of the file's table `sources`."""
    seen: Literal["text", "table", "log", "picture"]
    """What the number was read from."""
    system: str
    version: str
    gpu: str
    host: str
    link: str
    model: str
    layers: Count
    hidden: Count
    heads: Count
    ffn: Count
    """Width inside the feed-forward part; of a gated one, of each of its two halves."""
    task: Literal["generate", "train"]
    batch: Count
    """Samples in all."""
    gpu_batch: Count
    """Samples that the GPU works on at once."""
    precision: str
    weights: dict[Literal["gpu", "host", "nvme", "cpu"], Share]
    """Shares by place at rest; cpu: of layers that the CPU computes, in its memory."""
    activations: str
    """Where they are at rest; so `optimizer`."""
    pinned: str
    """Whether host memory of the copies is page-locked."""
    prefetch: Known
    """Whether the next layer's data are copied while one computes."""
    attention: Literal["gpu", "cpu"]
    """Where attention scores are computed in decoding or training."""
    measured: Annotated[float, Field(gt=0)]
    unit: Literal["tokens/s", "s/step", "s/token", "% loss"]
    resolution: Annotated[float, Field(ge=0, lt=0.5)]
    """Half-width of what the printed number leaves open, as a share of it."""
    gpus: Count = 1
    kv_heads: Count | None = None
    vocabulary: Count | None = None
    prompt: Count | None = None
    generate: Count | None = None
    seq: Count | None = None
    phase: Literal["all", "decode"] = "all"
    """The part of a generation that the number speaks of."""
    weight_bits: Annotated[float, Field(gt=0)] = 16
    """Of a stored weight, its part of the group's scales included."""
    cache_bits: Annotated[float, Field(gt=0)] = 16
    cache: Literal["gpu", "host", "nvme", "split"] = "gpu"
    """Keys and values; split: with their layer."""
    optimizer: str = ""
    step: Literal["gpu", "cpu", "none"] = "none"
    """Where the optimizer's step is computed."""
    layers_on_cpu: Annotated[StrictInt, Field(ge=0)] = 0
    checkpointing: StrictBool = False
    note: str = ""

    @property
    def held_out(self) -> bool:
        """Drawn, by its name alone, before any simulation was written: scored once, at the end."""
        return int(hashlib.sha256(self.name.encode()).hexdigest(), 16) % 3 == 0

    @property
    def configuration(self) -> str:
        """The machine and what is where, in a few words."""
        shares = ", ".join(f"{100 * share:.0f} % {place}" for place, share in self.weights.items() if share < 1) or "".join(
            self.weights
        )
        words = [self.gpu, f"weights {shares}"]
        words += [f"cache {self.cache}"] if self.task == "generate" else [f"optimizer {self.optimizer}"]
        words += [f"activations {self.activations}"] if self.activations != "gpu" else []
        words += [f"pinned {self.pinned}"] if {"host", "nvme"} & self.weights.keys() or self.task == "train" else []
        words += ["ahead"] if self.prefetch == "yes" else []
        words += [f"{self.layers_on_cpu} layers on the CPU"] if self.layers_on_cpu else []
        words += ["attention on the CPU"] if self.attention == "cpu" and not self.layers_on_cpu else []
        words += ["step on the CPU"] if self.step == "cpu" else []
        return ", ".join(words)

    @property
    def higher_is_better(self) -> bool:
        """Whether a larger number is a faster system."""
        return self.unit == "tokens/s"


@dataclass(frozen=True, config=STRICT)
class OffloadResult:
    """The file: where its numbers were published, and the cases."""

    sources: dict[str, str]
    cases: list[OffloadCase] = field(default_factory=list)


def load(path: Path = DATA) -> list[OffloadCase]:
    """The cases of a file, in its order.

    Raises ConfigError for keys that are unknown or missing and for values out of range, GpusimError for two cases of one name
    and for a source that the file does not list.
    """
    published = validate.build(OffloadResult, document.read(path))
    names: set[str] = set()
    for case in published.cases:
        if case.name in names:
            raise GpusimError(f"two cases are called '{case.name}'", where=str(path))
        names.add(case.name)
        if case.source not in published.sources:
            raise GpusimError(
                f"case '{case.name}' has the source '{case.source}', which is not in `sources`", where=str(path),
                hint=suggest(case.source, published.sources),
            )  # fmt: skip
        if abs(sum(case.weights.values()) - 1) > 1e-6:
            raise GpusimError(f"the shares of the weights of case '{case.name}' do not add up to 1", where=str(path))
        if (case.seq is None) != (case.task == "generate") or (case.prompt is None) != (case.task == "train"):
            raise GpusimError(
                f"case '{case.name}' has the wrong lengths for {case.task}", where=str(path),
                hint="generate has `prompt` and `generate`, train has `seq`",
            )  # fmt: skip
    return published.cases


@cache
def shipped() -> tuple[OffloadCase, ...]:
    """The cases that come with the program."""
    return tuple(load())


def visible() -> list[OffloadCase]:
    """The shipped cases that may be looked at while a simulation of them is written."""
    return [case for case in shipped() if not case.held_out]
