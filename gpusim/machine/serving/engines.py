"""What serving engines add to a step beside kernels: captured CUDA graphs and the CPU's work, `data/engines.yaml`."""

from __future__ import annotations

from dataclasses import field
from functools import cache
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass

from gpusim.base.errors import GpusimError
from gpusim.base.text import join
from gpusim.base.yaml import document, validate
from gpusim.base.yaml.fields import STRICT
from gpusim.machine.serving.tables import order

DATA = Path(__file__).parent / "data" / "engines.yaml"
NotNegative = Annotated[float, Field(ge=0)]


@dataclass(frozen=True, config=STRICT, kw_only=True)
class EngineCosts:
    """One engine from a version on, until the next of its name.

    framework   whose tables of operators it has
    capture     [up to, step] pairs: captured sizes go on in this step up to this size, after 1, 2 and 4
    seats       the largest captured size is no more than so many times the most requests that run; 0: no matter
    mixed       whether steps with prompts run in graphs, too
    overlap     whether the CPU prepares a step while the GPU computes the one before
    step_us     CPU time of a step, and of each of its requests
    """

    framework: Literal["vllm", "sglang", "trtllm"]
    capture: list[tuple[int, int]] = field(default_factory=list)
    seats: int = 0
    mixed: bool = False
    overlap: bool = False
    step_us: NotNegative
    request_us: NotNegative
    token_us: NotNegative = 0.0
    source: str

    def captured(self, most_requests: int) -> list[int]:
        """Captured sizes of an engine that runs at most so many requests."""
        if not self.capture:
            return []
        sizes, at = [1, 2, 4], 8
        for up_to, step in self.capture:
            sizes += range(at, up_to + 1, step)
            at = sizes[-1] + step if sizes[-1] >= 8 else at
        limit = self.seats * most_requests if self.seats else sizes[-1]
        return [size for size in sizes if size <= limit] or [1]


@dataclass(frozen=True, config=STRICT)
class EnginesFile:
    """The file."""

    engines: dict[str, dict[str, EngineCosts]]


@cache
def shipped() -> dict[str, dict[str, EngineCosts]]:
    """By name and version."""
    return validate.build(EnginesFile, document.read(DATA)).engines


def costs(engine: str) -> tuple[EngineCosts, str, str]:
    """Of `vllm@0.11` or `vllm`: the costs, the framework's version that was asked for ("" for none) and what they are of.

    Raises GpusimError for an engine without costs.
    """
    name, _, version = engine.partition("@")
    known = shipped().get(name)
    if known is None:
        raise GpusimError(f"there are no CPU times of the engine '{name}'", hint=f"there are of {join(sorted(shipped()))}")
    versions = sorted(known, key=order)
    below = [v for v in versions if not version or order(v) <= order(version)]
    if not below:
        raise GpusimError(f"there are no CPU times of {engine}", hint=f"there are of {name} {join(versions)}")
    return known[below[-1]], version, f"{name} {below[-1]}"
