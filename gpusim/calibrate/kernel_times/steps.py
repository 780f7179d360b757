"""Whole steps: the programs of published rows, and what the model says of them.

A store of programs is one file (`pack`): names, types and shapes as tables, then one line for each distinct operator of a
program with its flops, its bytes and how often it runs.
"""

from __future__ import annotations

import csv
import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
import numpy.typing as npt

from gpusim.calibrate.kernel_times.held_out import NETWORKS, family, family_held_out, gpu_kept_back
from gpusim.machine.kernels.classes import ClassedKernel, kernels
from gpusim.machine.kernels.shapes import Work

F64 = npt.NDArray[np.float64]
I64 = npt.NDArray[np.int64]

WORK = tuple(f.name for f in fields(Work))


def pack(folder: Path, path: Path) -> tuple[int, dict[str, str]]:
    """Write the programs that were recorded into `folder` as one file; how many there are, and why others failed."""
    tables: dict[str, dict[str, int]] = {"names": {}, "types": {}, "shapes": {}}
    programs: list[str] = []
    columns: list[list[float]] = []
    failed: dict[str, str] = {}
    for file in sorted(folder.glob("*.json.gz")):
        for program, found in json.loads(gzip.decompress(file.read_bytes())).items():
            if isinstance(found, str):
                failed[program] = found
                continue
            for name, dtype, shape, flops, read, written, count in found:
                words = [t.setdefault(w, len(t)) for t, w in zip(tables.values(), (name, dtype, shape), strict=True)]
                columns.append([len(programs), *words, flops, read, written, count])
            programs.append(program)
    texts = {key: np.array(list(table)) for key, table in tables.items()}
    data = np.array(columns, np.float64)
    np.savez_compressed(
        path, programs=np.array(programs), names=texts["names"], types=texts["types"], shapes=texts["shapes"],
        index=data[:, :4].astype(np.int32), flops=data[:, 4], moved=data[:, 5:7].astype(np.int64),
        count=data[:, 7].astype(np.int32),
    )  # fmt: skip
    return len(programs), failed


@dataclass(frozen=True)
class StepPrograms:
    """The operators of all programs, and the kernels that they launch."""

    names: list[str]
    operators: list[tuple[str, str, str, float, int, int]]
    """(O,) distinct: name, type, shape, flops, bytes read, written."""
    line_program: I64
    """(L,) index of a program"""
    line_operator: I64
    line_count: F64
    kernel_operator: I64
    """(K,) the operator that launches it"""
    what: npt.NDArray[np.str_]
    """(K,) class"""
    dtype: npt.NDArray[np.str_]
    work: dict[str, F64]
    """(K,) by name of `Work`"""

    def entries(self) -> tuple[I64, I64, F64]:
        """(E,) program, kernel and count: the lines by kernels."""
        order = np.argsort(self.kernel_operator, kind="stable")
        start = np.searchsorted(self.kernel_operator[order], np.arange(len(self.operators) + 1))
        n = np.diff(start)[self.line_operator]
        line = np.repeat(np.arange(len(self.line_operator)), n)
        within = np.arange(len(line)) - np.repeat(np.cumsum(n) - n, n)
        return self.line_program[line], order[start[self.line_operator[line]] + within], self.line_count[line]


def load(path: Path) -> StepPrograms:
    """The programs of a file that `pack` wrote."""
    with np.load(path) as file:
        names, types, shapes = (file[key].tolist() for key in ("names", "types", "shapes"))
        index, flops, moved, count = file["index"], file["flops"], file["moved"], file["count"]
        programs = file["programs"].tolist()
    keys = np.stack([*index[:, 1:].T, *moved.T, flops], axis=1)
    distinct, inverse = np.unique(keys, axis=0, return_inverse=True)
    operators = [
        (names[int(n)], types[int(t)], shapes[int(s)], float(f), int(r), int(w)) for n, t, s, r, w, f in distinct.tolist()
    ]
    made: list[ClassedKernel] = []
    owner: list[int] = []
    for i, operator in enumerate(operators):
        for kernel in kernels(*operator):
            made.append(kernel)
            owner.append(i)
    work = {name: np.array([getattr(k, name) for k in made], np.float64) for name in WORK}
    return StepPrograms(
        programs,
        operators,
        index[:, 0].astype(np.int64),
        inverse.ravel().astype(np.int64),
        count.astype(np.float64),
        np.array(owner, np.int64),
        np.array([k.what for k in made]),
        np.array([k.dtype for k in made]),
        work,
    )


@dataclass(frozen=True)
class PublishedStep:
    """One published row."""

    source: str
    gpu: str
    network: str
    mode: str
    config: str
    """Layout and version of PyTorch, or what else tells two rows of a network apart"""
    program: str
    ns: float
    held: bool
    """Of a network that no fit may see"""

    @property
    def family(self) -> str:
        return family(self.network) if self.source == "timm" else self.network


def published(folder: Path) -> list[PublishedStep]:
    """The rows of whole steps whose program is known exactly."""
    return [step for step in (*_timm(folder), *_neusight(folder)) if not gpu_kept_back(step.gpu, step.source)]


def rows(path: Path) -> list[dict[str, str]]:
    """The lines of one table."""
    with gzip.open(path, "rt", newline="") as file:
        return list(csv.DictReader(file))


def _timm(folder: Path) -> Iterator[PublishedStep]:
    for row in rows(folder / "timm_steps.csv.gz"):
        fused = "fused" if int(row["torch"]) >= 200 else "plain"
        size, batch = int(float(row["img"])), int(float(row["batch"]))
        program = f"{row['network']}/{row['mode']}/{row['layout']}/{fused}/{batch}/{size}"
        yield PublishedStep(
            "timm", row["gpu"], row["network"], row["mode"], f"{row['layout']} {row['torch']}", program,
            float(row["step_ms"]) * 1e6, family_held_out(row["network"]),
        )  # fmt: skip


def _neusight(folder: Path) -> Iterator[PublishedStep]:
    for row in rows(folder / "neusight_steps.csv.gz"):
        if not row["batch"].isdigit():
            continue  # fused graphs, several GPUs
        mode = "infer" if row["mode"] == "inf" else "train"
        held = row["network"] in NETWORKS["neusight"]
        yield PublishedStep(
            "neusight", row["gpu"], row["network"], mode, row["seq"],
            f"{row['network']}/{mode}/{row['seq']}/{row['batch']}", float(row["step_ms"]) * 1e6, held,
        )  # fmt: skip
