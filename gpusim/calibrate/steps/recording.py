"""The folder of measured steps: `steps.json`, and beside it a trace of each program and PyTorch's own snapshot."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from gpusim.base.errors import MeasurementError, suggest
from gpusim.base.files import write_json

FILE = "steps.json"
RESIDENT, OFFLOAD, PREFETCH = WAYS = ("resident", "offload", "prefetch")
"""Where saved activations are between the passes: on the device; in host memory, each copy out awaited; there too, by a second
stream, and back ahead of their use."""
LEAST = 1 << 20  # bytes of an activation that is offloaded
AHEAD = 2  # activations that are brought back before their turn


@dataclass(frozen=True)
class MeasuredStep:
    """One program in one way."""

    program: str
    """As `gpusim.programs.zoo.build` takes it."""
    way: str
    step_ns: float
    """Median of `repeats` steps, host clock with a wait for the device at both ends."""
    low_ns: float
    high_ns: float
    repeats: int
    allocated_peak: int
    """Bytes, by PyTorch's own count, as `reserved_peak`."""
    reserved_peak: int
    moved_bytes: int = 0
    """To host memory in one step, and as many back."""
    trace: str = ""
    """File in the folder; of resident steps."""
    issue_ns: float = 0.0
    """Until the host has started all of a step on an idle device: its own time, where the device is the faster of the two."""


def write(folder: Path, conditions: Mapping[str, Any], steps: Sequence[MeasuredStep]) -> None:
    """Write `steps.json`; the traces are there already."""
    write_json(folder / FILE, {"conditions": dict(conditions), "steps": [asdict(step) for step in steps]})


def read(folder: Path) -> tuple[dict[str, Any], list[MeasuredStep]]:
    """Conditions and steps.  Raises MeasurementError for what is missing or cannot be."""
    path = folder / FILE
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise MeasurementError(f"cannot be read: {error.strerror}", str(path), "it is made by gpusim calibrate steps") from None
    except ValueError as error:
        raise MeasurementError(f"is not JSON: {error}", str(path)) from None
    if not isinstance(found, dict) or not isinstance(found.get("steps"), list) or not found["steps"]:
        raise MeasurementError("holds no steps", str(path))
    conditions = found.get("conditions")
    steps = [_step(cells, f"{path}: step {n}", folder) for n, cells in enumerate(found["steps"], 1)]
    return conditions if isinstance(conditions, dict) else {}, steps


def _step(cells: Any, where: str, folder: Path) -> MeasuredStep:
    known = {f.name: f for f in fields(MeasuredStep)}
    if not isinstance(cells, dict):
        raise MeasurementError("is not an object", where)
    for name in cells:
        if name not in known:
            raise MeasurementError(f"has an unknown key '{name}'", where, suggest(name, known))
    for name in list(known)[:8]:
        if name not in cells:
            raise MeasurementError(f"lacks '{name}'", where)
    for name, value in cells.items():
        text = name in ("program", "way", "trace")
        if not isinstance(value, str if text else int | float) or isinstance(value, bool):
            raise MeasurementError(f"'{name}' is {value!r}, which is no {'text' if text else 'number'}", where)
        if not text and not 0 <= float(value) < math.inf:
            raise MeasurementError(f"'{name}' is {value}, which cannot be measured", where)
    step = MeasuredStep(**cells)
    if step.way not in WAYS:
        raise MeasurementError(f"'{step.way}' is no way to keep activations", where, suggest(step.way, WAYS))
    if step.trace and not (folder / step.trace).is_file():
        raise MeasurementError(f"names the trace '{step.trace}', which is not in the folder", where)
    return step
