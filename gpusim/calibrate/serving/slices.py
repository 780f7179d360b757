"""Slices of the tables of measured operators that are held out whole, and the operators as they are then said to take.

Nothing is chosen by its error: every slice of a rule is held out in turn, and all are counted.

    heads      all attention of one number of heads; each but the smallest and the largest of its group
    batch      decode and prompts of a range of batches, products of a range of rows (`RANGES`)
    matrix     products of one number of outputs, and of one number of inputs; each but the smallest and the largest
    version    all operators of a framework's newest version, said by the version before
    GPU        all operators of a machine, said by its kin's table, or by the kernel-time model where it has no kin
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from gpusim.machine import catalogue
from gpusim.machine.collectives.times import CollectiveTimes
from gpusim.machine.serving.operators import OperatorModel, kin
from gpusim.machine.serving.tables import MeasuredOperators, ServingTables, median_of
from gpusim.machine.topology import build

F64 = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

RANGES = {
    "gemm": ("m", ((17, 64), (65, 256), (257, 1024), (1025, 4096))),
    "decode": ("b", ((4, 8), (16, 32), (64, 128), (256, 512))),
    "prefill": ("b", ((2, 4), (8, 16))),
}
"""Class -> the dimension whose ranges are held out, and these."""
DTYPES = ("bf16", "fp8")
_FILES = {
    "gemm": ("gemm", "gemm"), "decode": ("attention", "generation_attention"), "prefill": ("attention", "context_attention"),
}  # fmt: skip
Slice = Callable[[MeasuredOperators], Mask]
"""Which rows it holds out."""


@dataclass(frozen=True)
class FilteredTables:
    """Tables of which some rows are hidden: `hidden` says which of a class's."""

    tables: ServingTables
    hidden: Callable[[str, MeasuredOperators], Mask]

    def gemm(self, dtype: str) -> MeasuredOperators | None:
        return self._seen("gemm", self.tables.gemm(dtype))

    def decode(self, cache: str) -> MeasuredOperators | None:
        return self._seen("decode", self.tables.decode(cache))

    def prefill(self, cache: str) -> MeasuredOperators | None:
        return self._seen("prefill", self.tables.prefill(cache))

    def moe(self, dtype: str, routing: str) -> MeasuredOperators | None:
        return self._seen("moe", self.tables.moe(dtype, routing))

    def all_reduce(self) -> MeasuredOperators | None:
        return self._seen("all_reduce", self.tables.all_reduce())

    def _seen(self, kind: str, found: MeasuredOperators | None) -> MeasuredOperators | None:
        return None if found is None else found.where(~self.hidden(kind, found))


@dataclass(frozen=True)
class HeldOut:
    """(N,) logarithms of stated over measured times of a class of operators on a machine that a slice held out."""

    rule: str
    machine: str
    framework: str
    kind: str
    dtype: str
    log: F64


def within(tables: ServingTables) -> Iterator[HeldOut]:
    """Slices of one machine's own tables."""
    for kind in ("decode", "prefill"):
        yield from _each(tables, kind, "bf16", "heads", _interior(_table(tables, kind, "bf16"), "heads"))
        yield from _each(tables, kind, "bf16", "batch", _ranges(kind))
    for dtype in DTYPES:
        found = tables.gemm(dtype)
        if found is not None:
            yield from _each(tables, "gemm", dtype, "batch", _ranges("gemm"))
            yield from _each(tables, "gemm", dtype, "matrix", [*_interior(found, "n"), *_interior(found, "k")])


def by_version(tables: ServingTables) -> Iterator[HeldOut]:
    """The newest version of each class of operators by the one before."""
    for kind, place in _FILES.items():
        versions = tables.versions(*place)
        if len(versions) < 2:
            continue
        machine = catalogue.load(tables.machine)
        before = OperatorModel(machine, replace(tables, version=versions[-2]), machine, briefly=True)
        for dtype in DTYPES if kind == "gemm" else ("bf16",):
            found = _table(tables, kind, dtype)
            if found is not None and _table(replace(tables, version=versions[-2]), kind, dtype) is not None:
                yield HeldOut("version", tables.machine, tables.framework, kind, dtype, _logs(before, kind, dtype, found))


def by_version_of_exchanges(tables: ServingTables) -> Iterator[HeldOut]:
    """All-reduces of each version by the median of the others."""
    found = tables.all_reduces()
    for i, own in enumerate(found if len(found) > 1 else ()):
        others = median_of(found[:i] + found[i + 1 :])
        places = dict(zip(_places(others), others.ns, strict=True))
        pairs = [(places[place], ns) for place, ns in zip(_places(own), own.ns, strict=True) if place in places]
        log = np.array([np.log(stated / measured) for stated, measured in pairs])
        yield HeldOut("version", tables.machine, tables.framework, "all_reduce", "bf16", log)


def _places(rows: MeasuredOperators) -> list[tuple[float, float]]:
    return list(zip(rows.dims["ranks"].tolist(), rows.dims["bytes"].tolist(), strict=True))


def by_machine(tables: ServingTables) -> Iterator[HeldOut]:
    """All of a machine's operators, from what is known without it."""
    model = without(tables, briefly=True)
    for kind, dtype in (("gemm", "bf16"), ("gemm", "fp8"), ("decode", "bf16"), ("prefill", "bf16")):
        found = _table(tables, kind, dtype)
        if found is not None:
            rule = "GPU, from its kin" if model.tables is not None else "GPU, from the form"
            yield HeldOut(rule, tables.machine, tables.framework, kind, dtype, _logs(model, kind, dtype, found))


def without(tables: ServingTables, briefly: bool = False) -> OperatorModel:
    """The operators of a machine as if it had no table."""
    machine = catalogue.load(tables.machine)
    for name in kin(machine):
        other = replace(tables, machine=name)
        if other.gemm("bf16") is not None:
            return OperatorModel(machine, other, catalogue.load(name), left_out=True, briefly=briefly)
    return OperatorModel(machine, left_out=True, briefly=briefly)


def hiding(tables: ServingTables, masks: Mapping[str, Slice], briefly: bool = False) -> OperatorModel:
    """The machine's operators without some rows, by class."""
    machine = catalogue.load(tables.machine)
    seen = FilteredTables(tables, lambda kind, rows: masks[kind](rows) if kind in masks else np.zeros(len(rows.ns), bool))
    return OperatorModel(machine, seen, machine, briefly=briefly)


def _interior(found: MeasuredOperators | None, name: str) -> list[Slice]:
    """One value each of a dimension, but for the smallest and the largest of the rows that share a grid with it."""
    if found is None:
        return []
    group = found.dims["kv_heads"] * 1e4 + found.dims["dim"] if "kv_heads" in found.dims else np.zeros(len(found.ns))
    low, high = np.full(len(found.ns), np.inf), np.zeros(len(found.ns))
    for g in np.unique(group):
        at = group == g
        low[at], high[at] = found.dims[name][at].min(), found.dims[name][at].max()
    inside = (found.dims[name] > low) & (found.dims[name] < high)
    values = np.unique(found.dims[name][inside])
    return [_one_value(name, float(value), inside) for value in values]


def _one_value(name: str, value: float, inside: Mask) -> Slice:
    return lambda rows: (rows.dims[name] == value) & inside


def in_range(name: str, least: float, most: float) -> Slice:
    """Rows whose dimension is between these, both included."""
    return lambda rows: (rows.dims[name] >= least) & (rows.dims[name] <= most)


def _ranges(kind: str) -> list[Slice]:
    name, ranges = RANGES[kind]
    return [in_range(name, *ends) for ends in ranges]


def by_links(tables: ServingTables, machine: str) -> Iterator[HeldOut]:
    """A framework's all-reduces in graphs, said by NCCL's on the machine's links."""
    found = tables.all_reduce()
    if found is None:
        return
    topology = build.load(machine)
    times = CollectiveTimes(topology)
    for ranks in (2, 4, 8):
        own = found.where(found.dims["ranks"] == ranks)
        if ranks <= len(topology.gpus) and len(own.ns):
            stated = [times.of("all_reduce", topology.gpus[:ranks], int(size)).ns for size in own.dims["bytes"]]
            yield HeldOut("links", tables.machine, tables.framework, "all_reduce", "bf16", np.log(np.array(stated) / own.ns))


def _each(tables: ServingTables, kind: str, dtype: str, rule: str, slices: list[Slice]) -> Iterator[HeldOut]:
    found = _table(tables, kind, dtype)
    for of in slices if found is not None else ():
        assert found is not None
        mask = of(found)
        if mask.any() and not mask.all():
            model = hiding(tables, {kind: of}, briefly=True)
            yield HeldOut(rule, tables.machine, tables.framework, kind, dtype, _logs(model, kind, dtype, found.where(mask)))


def _table(tables: ServingTables, kind: str, dtype: str) -> MeasuredOperators | None:
    found: MeasuredOperators | None = getattr(tables, kind)(dtype)
    return found


def _logs(model: OperatorModel, kind: str, dtype: str, rows: MeasuredOperators) -> F64:
    """(N,) log of stated over measured."""
    if kind == "gemm":
        d = rows.dims
        return np.asarray(np.log(model.gemm(dtype, d["m"], d["n"], d["k"]) / rows.ns), np.float64)
    out, length = np.zeros(len(rows.ns)), "kv" if kind == "decode" else "q"
    shapes = np.stack([rows.dims[name] for name in ("heads", "kv_heads", "dim")], axis=1)
    for shape in np.unique(shapes, axis=0):
        at = (shapes == shape).all(axis=1)
        stated = getattr(model, kind)(dtype, rows.dims["b"][at], rows.dims[length][at], *(int(n) for n in shape))
        out[at] = np.log(stated / rows.ns[at])
    return out
