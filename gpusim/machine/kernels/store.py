"""What was fitted, as shipped: coefficients, intervals and rates in `data/kernels.yaml`, corrections in `data/tables.npz`.

A level of a correction is three arrays: octaves between nodes, the nodes' keys as steps from one to the next, and values in
hundredths.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from gpusim.base.yaml import document
from gpusim.machine.kernels.correction import Lattice, Level
from gpusim.machine.kernels.physics import ClassCoefficients

DATA = Path(__file__).parent / "data"
HUNDREDTHS = 100.0
LEAST = 0.015
"""Nodes that say less are not kept."""


@dataclass(frozen=True)
class ShippedFit:
    """One class and element type."""

    coefficients: ClassCoefficients
    axes: tuple[str, ...]
    gpus: tuple[str, ...]
    """That have a table."""
    intervals: dict[str, tuple[float, float]]
    """By basis: the 10th and 90th percentile of log(measured / model) on what was not fitted."""


@cache
def fits() -> dict[tuple[str, str], ShippedFit]:
    """By class and element type."""
    found = {}
    for entry in _data("kernels")["classes"]:
        intervals = {basis: (float(low), float(high)) for basis, (low, high) in entry["intervals"].items()}
        found[entry["what"], entry["type"]] = ShippedFit(
            _coefficients(entry),
            tuple(entry["axes"]),
            tuple(entry["tables"]),
            intervals,
        )
    return found


@cache
def rates() -> dict[str, dict[str, float]]:
    """By GPU: measured flop/s by element type, bytes/s as "bandwidth", and as "sustained" the share that a warm GPU has."""
    rows = _data("kernels")["rates"]
    return {gpu: {name: float(value) for name, value in entry.items()} for gpu, entry in rows.items()}


@cache
def vendors() -> dict[str, dict[str, float]]:
    """By measured GPU: capability, processors, hbm (0 or 1), bandwidth, copy and the vendor's peak by element type."""
    rows = _data("kernels")["gpus"]
    return {gpu: {name: float(value) for name, value in entry.items()} for gpu, entry in rows.items()}


@cache
def of_steps() -> dict[tuple[str, str], ClassCoefficients]:
    """What whole steps of eager PyTorch say, by class (`classes`) and "half" (16 bits) or "float32"."""
    return {
        (entry["what"], entry["type"]): _coefficients(entry)
        for entry in _data("steps")["classes"]
    }


@cache
def of_recordings(gpu: str) -> tuple[dict[tuple[str, str], dict[str, float]], tuple[float, float]]:
    """What recorded steps say of this GPU: by class and "half" or "float32" coefficients in place of others; with the 10th and
    90th percentile of log(measured / model) of recordings that were not fitted."""
    found = _data("recorded").get(gpu)
    if not found:
        return {}, (0.0, 0.0)
    classes = {
        (entry["what"], entry["type"]): {name: float(value) for name, value in entry["coefficients"].items()}
        for entry in found["classes"]
    }
    return classes, (float(found["interval"][0]), float(found["interval"][1]))


@cache
def intervals_of_steps() -> dict[str, tuple[float, float]]:
    """By basis: the 10th and 90th percentile of log(measured / model) of whole steps that were not fitted."""
    found = _data("steps")["intervals"]
    return {basis: (float(low), float(high)) for basis, (low, high) in found.items()}


@cache
def gpus_of_steps(kind: str) -> tuple[str, ...]:
    """Whose whole steps were fitted, of "half" or "float32"."""
    return tuple(_data("steps")["gpus"][kind])


@cache
def rates_of_steps() -> dict[str, dict[str, float]]:
    """As `rates`, of GPUs whose whole steps were fitted."""
    rows = _data("steps")["rates"]
    return {gpu: {name: float(value) for name, value in entry.items()} for gpu, entry in rows.items()}


@cache
def table(what: str, dtype: str, gpu: str) -> Lattice:
    """The correction of one class on one GPU."""
    file, name, levels = _tables(), f"{what}/{dtype}/{gpu}", list[Level]()
    while f"{name}/{len(levels)}/keys" in file:
        part = f"{name}/{len(levels)}"
        keys = np.cumsum(file[f"{part}/keys"].astype(np.int64))
        levels.append(Level(tuple(file[f"{part}/steps"].tolist()), keys, file[f"{part}/values"] / HUNDREDTHS))
    return Lattice(tuple(levels))


@cache
def _tables() -> Any:
    """The file, open: of its thousand arrays few are read."""
    return np.load(DATA / "tables.npz")


@cache
def _data(name: str) -> Any:
    return document.read(DATA / f"{name}.yaml").data


def _coefficients(entry: dict[str, Any]) -> ClassCoefficients:
    return ClassCoefficients(**{name: float(value) for name, value in entry["coefficients"].items()})


def packed(name: str, lattice: Lattice) -> dict[str, Any]:
    """The arrays of a correction, for `tables.npz`."""
    out: dict[str, Any] = {}
    for i, level in enumerate(lattice.levels):
        values = np.clip(np.rint(level.values * HUNDREDTHS), -127, 127).astype(np.int8)
        keep = np.abs(level.values) >= LEAST
        if not keep.any():
            keep[:1] = True
        out[f"{name}/{i}/steps"] = np.array(level.steps, np.float32)
        gaps = np.diff(level.keys[keep], prepend=0)
        out[f"{name}/{i}/keys"] = gaps.astype(np.int32) if gaps.max() < 2**31 else gaps
        out[f"{name}/{i}/values"] = values[keep]
    return out
