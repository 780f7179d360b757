"""PipeSwitch's task switches: a request comes for a model in host memory while another program has the GPU.

Known are the machine, the groups of layers and the time of a request whose model is ready.  A request is a program on the
island: on one stream the copies of its groups, and behind each the message that it is there; on another the groups' kernels,
each behind its message, or all behind the last (PipeSwitch, OSDI 2020).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from statistics import median
from typing import Annotated, NamedTuple

from pydantic import Field
from pydantic.dataclasses import dataclass

from gpusim.base.yaml import document, validate
from gpusim.base.yaml.fields import STRICT
from gpusim.engine.run.simulate import simulate
from gpusim.machine import catalogue
from gpusim.machine.profile import Profile, changed
from gpusim.trace.build import TraceBuilder
from gpusim.trace.trace import COPY_IN, RECORD, WAIT

FILE = Path(__file__).parents[1] / "data" / "switch_published.yaml"
READY, BYTES = "ready_model", 4  # of a parameter
MESSAGES = ("grouped", "per_layer_no_pipeline")
"""Systems whose time is copies and messages one behind the other: they tell what a message costs."""
COPIED = ("pipeswitch", "per_layer", *MESSAGES, "no_pin")
"""Systems that differ only in how layers are copied."""


class LayerGroup(NamedTuple):
    """Layers that are copied together: bytes, and ns to compute them."""

    size: float
    compute: float


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
    return loaded(changed(profile, "link.h2d", rate), parts, message * 1e6, pipelined=system not in MESSAGES) / 1e6


def loaded(profile: Profile, groups: Sequence[LayerGroup], each: float = 0.0, *, pipelined: bool = True) -> float:
    """ns until all groups are computed.  each: ns of a message."""
    for path in ("launch.gap", "launch.submit", "launch.eager"):  # times of requests have them
        profile = changed(profile, path, 0.0)
    build, (copies, kernels) = TraceBuilder("a model that comes"), (1, 0)
    for k, group in enumerate(groups):
        build.op("copy", [], [], read_bytes=round(group.size), stream=copies, activity=COPY_IN)
        build.op("message", [], [], duration=max(1, round(each)), stream=copies)
        if pipelined or k == len(groups) - 1:
            build.event(RECORD, k, stream=copies)
            build.event(WAIT, k, stream=kernels)
        if pipelined:
            build.op("layers", [], [], duration=round(group.compute), stream=kernels)
    for group in () if pipelined else groups:
        build.op("layers", [], [], duration=round(group.compute), stream=kernels)
    return float(simulate(build.finish(), profile, place="device", share="engines").metrics["makespan_ns"])


@cache
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
