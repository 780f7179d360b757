"""The tape of a training program: start, first step, every other step, end."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from types import ModuleType
from typing import Any

from gpusim.base.errors import GpusimError, suggest
from gpusim.programs.generate import gpt2, llama
from gpusim.programs.generate.tape import AffineSize, RequestTape, Section
from gpusim.programs.generate.transformer import Dimensions

MODELS: dict[str, ModuleType] = {"gpt2": gpt2, "llama": llama}


@dataclass(frozen=True)
class Training:
    """Sections of one tape; `first` and `step` are affine in the length of the sequences."""

    rows: Any
    units: int
    start: Section
    first: Section
    step: Section
    end: Section


def model(name: str) -> ModuleType:
    if name not in MODELS:
        raise GpusimError(f"there is no model '{name}'", hint=suggest(name, MODELS))
    return MODELS[name]


@cache
def tape(name: str, shape: Dimensions, checkpoint: bool) -> Training:
    """PyTorch's order: Adam makes its state in the first step; gradients die after each; its foreach form has one
    temporary for each parameter."""
    t, sizes = RequestTape(), model(name).parameters(shape)
    for size in sizes + model(name).buffers(shape):
        t.new(size)
    start = t.cut()
    first, step = (_step(t, name, shape, sizes, checkpoint, state) for state in (True, False))
    t.free_all()
    return Training(t.rows(), t.units, start, first, step, t.cut())


def _step(t: RequestTape, name: str, shape: Dimensions, sizes: list[AffineSize], checkpoint: bool, state: bool) -> Section:
    inputs = [t.new(shape.tokens(1, 8)) for _ in ("ids", "labels")]
    gradients = model(name).step(t, shape, checkpoint)
    if state:
        for size in sizes:
            t.new(size), t.new(size)
    temporaries = [t.new(size) for size in sizes]
    t.free(*reversed(temporaries))
    t.free(*gradients, *inputs)
    return t.cut()
