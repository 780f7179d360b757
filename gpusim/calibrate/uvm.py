"""Constants of the cost model from published measurements: least squares on relative errors, over the rows marked calibrate."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np


@dataclass(frozen=True)
class PublishedRow:
    """One published measurement."""

    id: str
    group: str
    key: str
    what: str
    hardware: str
    workload: str
    conditions: str
    value: float
    unit: str
    use: str
    source: str


def read(path: Path) -> list[PublishedRow]:
    with path.open(newline="") as file:
        return [
            PublishedRow(r["id"], r["group"], r["condition_key"], r["what"], r["hardware"], r["workload"], r["conditions"],
                float(r["value"]), r["unit"], r["use"], f"{r['source_title']}, {r['url']}")
            for r in csv.DictReader(file)
        ]  # fmt: skip


def line(points: Iterable[tuple[float, float]]) -> tuple[float, float]:
    """start, slope of y = start + slope x, of least relative error."""
    x, y = np.array(list(points)).T
    weighted = np.stack([1 / y, x / y], axis=1)
    start, slope = np.linalg.lstsq(weighted, np.ones(len(y)), rcond=None)[0]
    return float(start), float(slope)


@dataclass(frozen=True)
class DriverFit:
    """ns, and ns per byte or page."""

    in_start: float
    in_byte: float
    out_start: float
    out_byte: float
    fault: float        # a fault alone in its batch: pass, batch, block and replay as well
    page: float
    first_touch: float


def fit(rows: Iterable[PublishedRow]) -> DriverFit:
    """The GTX 1080 Ti (UVMSmart's micro-benchmarks): copies by size, single faults by what they move."""
    mine = {r.key: r for r in rows if r.use == "calibrate" and r.hardware.startswith("GeForce GTX 1080 Ti")}

    def sizes(pattern: str) -> list[tuple[float, float]]:
        found = ((re.fullmatch(pattern, key), r) for key, r in mine.items())
        return [(1024.0 * int(m[1]), 1000 * r.value) for m, r in found if m]

    in_start, in_byte = line(sizes(r"um_htod_(\d+)KB"))
    out_start, out_byte = line(sizes(r"um_dtoh_(\d+)KB"))
    # What is left of a fault after its copies: the faulted page, and the rest behind it without a gap.
    faults = [(size / 4096, ns - in_start - size * in_byte) for size, ns in sizes(r"nvprof_fault_(\d+)KB")]
    fault, page = line(faults)
    first = 1000 * (mine["nvprof_first_in_block"].value - mine["nvprof_fault_64KB"].value)
    return DriverFit(in_start, in_byte, out_start, out_byte, fault, page, first)
