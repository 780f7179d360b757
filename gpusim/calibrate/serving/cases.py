"""The published runs of serving engines: one configuration each, with what was measured and where to read it."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path
from typing import Annotated

from pydantic import Field, StrictInt
from pydantic.dataclasses import dataclass

from gpusim.base.errors import GpusimError, suggest
from gpusim.base.yaml import document, validate
from gpusim.base.yaml.fields import STRICT

DATA = Path(__file__).parents[1] / "data" / "serving_published.yaml"
Count = Annotated[StrictInt, Field(ge=1)]
Positive = Annotated[float, Field(gt=0)]
Row = tuple[int, int, int, int, float, float]
"""Prompt and output tokens of the longest request, requests at once, GPUs, ms to the first token, ms of each other token."""


@dataclass(frozen=True, config=STRICT, kw_only=True)
class PublishedRuns:
    """Runs of one source that differ in lengths, requests at once and GPUs alone.

    source     a key of the file's table `sources`
    model      of the zoo
    shortest   share of a row's lengths that the shortest requests have, all lengths between being alike; 1: all are equal
    clients    requests of a run for each that is there at once; a client sends the next when one is answered
    budget     most tokens of a step; 0: the engine's default, which the source does not name
    seats      most requests that run; 0: as many as there are at once
    overlap    the CPU works while the GPU computes: SGLang's overlap schedule, vLLM's async scheduling
    prompt_graphs  whether steps with prompts are in CUDA graphs, as the engine has them by default
    """

    name: str
    source: str
    engine: str
    model: str
    weights: str
    cache: str
    machine: str
    shortest: Positive
    clients: Count
    budget: Annotated[StrictInt, Field(ge=0)]
    seats: Annotated[StrictInt, Field(ge=0)]
    overlap: bool
    prompt_graphs: bool = True
    prefix_caching: bool
    flags_stated: bool
    """Whether the source states how the engine was started."""
    rows: list[Row]


@dataclass(frozen=True)
class PublishedRun:
    """One run; times in ms."""

    set: PublishedRuns
    prompt: int
    output: int
    at_once: int
    ways: int
    ttft: float
    tpot: float

    @property
    def name(self) -> str:
        """Says which it is."""
        return f"{self.set.name}-{self.prompt}-{self.output}-c{self.at_once}-tp{self.ways}"

    @property
    def held_out(self) -> bool:
        """Drawn, by its name alone, before any run was simulated: scored once, at the end."""
        return int(hashlib.sha256(self.name.encode()).hexdigest(), 16) % 2 == 0


@dataclass(frozen=True, config=STRICT)
class ServingPublished:
    """The file: where its numbers were published, and the sets of runs."""

    sources: dict[str, str]
    sets: list[PublishedRuns]

    def runs(self) -> list[PublishedRun]:
        """All of them, in the order of the file."""
        return [PublishedRun(of, *row) for of in self.sets for row in of.rows]


def load(path: Path = DATA) -> ServingPublished:
    """A file of published runs.

    Raises ConfigError for keys that are unknown or missing and for values out of range, GpusimError for two runs of one name,
    and for a source that the file does not have.
    """
    found = validate.build(ServingPublished, document.read(path))
    names = [run.name for run in found.runs()]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise GpusimError(f"two runs are called '{twice}'", where=str(path))
    for of in found.sets:
        if of.source not in found.sources:
            raise GpusimError(f"'{of.name}' has no source '{of.source}'", str(path), suggest(of.source, found.sources))
    return found


@cache
def shipped() -> ServingPublished:
    """Those of the package."""
    return load()
