"""PipeSwitch's task switches: a request comes for a model in host memory while another program has the GPU.

Known are the machine, the groups of layers and the time of a request whose model is ready.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from statistics import median
from typing import Annotated

from pydantic import Field
from pydantic.dataclasses import dataclass

from gpusim.base.yaml import document, validate
from gpusim.base.yaml.fields import STRICT
from gpusim.machine import catalogue
from gpusim.machine.switching import LayerGroup, loaded

FILE = Path(__file__).parents[1] / "data" / "switch_published.yaml"
READY, BYTES = "ready_model", 4  # of a parameter
MESSAGES = ("grouped", "per_layer_no_pipeline")
"""Systems whose time is copies and messages one behind the other: they tell what a message costs."""
COPIED = ("pipeswitch", "per_layer", *MESSAGES, "no_pin")
"""Systems that differ only in how layers are copied."""


@dataclass(frozen=True, config=STRICT)
class SwitchFile:
    gpu: str
    models: dict[str, list[Annotated[list[int], Field(min_length=3, max_length=3)]]]
    rows: list[tuple[str, str, float, str]]


@dataclass(frozen=True, config=STRICT)
class SwitchRow:
    """measured: ms."""

    system: str
    model: str
    measured: float


@cache
def published(file: Path = FILE) -> tuple[SwitchFile, tuple[SwitchRow, ...]]:
    found = validate.build(SwitchFile, document.read(file))
    return found, tuple(SwitchRow(system, model, ms) for system, model, ms, _ in found.rows)


def ready(model: str) -> float:
    """ms of a request whose model is on the GPU: the median of the published ones."""
    return median(row.measured for row in published()[1] if (row.system, row.model) == (READY, model))


def groups(model: str, *, layers: bool = False) -> list[LayerGroup]:
    """The model's groups, or each layer as its own; each layer takes an equal part of the time."""
    cut = [(size, count) for size, count, times in published()[0].models[model] for _ in range(times)]
    one = ready(model) * 1e6 / sum(count for _, count in cut)
    if layers:
        return [LayerGroup(BYTES * size / count, one) for size, count in cut for _ in range(count)]
    return [LayerGroup(BYTES * size, one * count) for size, count in cut]


def copied(system: str, model: str, message: float) -> float:
    """ms of a switch in a system of COPIED; message: ms."""
    profile = catalogue.load(published()[0].gpu)
    rate = profile.host.pageable_h2d.value if system == "no_pin" else profile.link.h2d.value
    parts = groups(model, layers=system.startswith("per_layer"))
    return loaded(parts, rate, message * 1e6, pipelined=system not in MESSAGES) / 1e6


def message(without: str) -> float:
    """ms that a group costs beside its bytes, by the systems of MESSAGES but this one."""
    found = [
        (row.measured - copied(row.system, row.model, 0.0)) / len(groups(row.model, layers=row.system.startswith("per_layer")))
        for row in published()[1] if row.system in MESSAGES and row.system != without
    ]  # fmt: skip
    return median(found)


def mechanism(system: str, model: str) -> float:
    """ms of what is modelled of a system."""
    if system in COPIED:
        return copied(system, model, message(system))
    if system in ("mps", "kill_restart"):  # a program of its own that copies from memory that is not pinned
        rate = catalogue.load(published()[0].gpu).host.pageable_h2d.value
        return ready(model) + sum(group.size for group in groups(model)) / rate * 1e3
    return copied("pipeswitch", model, message(""))


def left_out() -> list[tuple[SwitchRow, float]]:
    """Each row that can be predicted, and ms."""
    all_rows = [row for row in published()[1] if row.system != READY]
    found = []
    for row in all_rows:
        if row.system in COPIED:
            found.append((row, mechanism(row.system, row.model)))
            continue
        others = [r for r in all_rows if r.system == row.system and r.model != row.model]
        if others:
            found.append((row, mechanism(row.system, row.model) + _extra(others)))
    return found


def _extra(others: Sequence[SwitchRow]) -> float:
    """ms that the same system costs other models beyond what is modelled."""
    return median(row.measured - mechanism(row.system, row.model) for row in others)
