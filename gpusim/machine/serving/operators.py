"""How long the operators of a served model take on a machine: measured ones, interpolated on the kernel-time model's form.

    time = form(machine, work) * exp(residual)

The form is `machine.kernels.physics` with its shipped coefficients.  The residual is the logarithm of measured over form at the
shapes of a table, multilinear between them in the logarithms of the dimensions (`grids`): a measured shape has its measured
time, and beyond a table the time grows as the work does.  A machine without a table of its own has the residuals of its kin, on
a form with its own numbers; one without kin has the form with the corrections that the kernel-time model ships.

Two things differ between the tables' benchmarks and a step, and are taken from the form: weights come from memory, where the
benchmarks use six sets in turn; and products run at the rate of a warm GPU (`sustained` of the kernel-time model's rates),
where the benchmarks are too short for the power limit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
import numpy.typing as npt

from gpusim.machine import catalogue
from gpusim.machine.kernels.measured import measured_gpu
from gpusim.machine.kernels.numbers import Numbers
from gpusim.machine.kernels.physics import ClassCoefficients, Rates, predict
from gpusim.machine.kernels.shapes import Work, work
from gpusim.machine.kernels.store import fits, rates, table
from gpusim.machine.profile import Profile
from gpusim.machine.serving.grids import LogGrid, grid
from gpusim.machine.serving.tables import SYSTEMS, MeasuredOperators

F64 = npt.NDArray[np.float64]
Dims = Mapping[str, F64]

MEASURED, FAMILY, FORM = "measured", "family", "form"
"""How a class of operators is known: a table of this machine, one of its kin, or the kernel-time model alone."""
_SIZE = {"bf16": 2, "fp8": 1, "fp8_block": 1}
_FORM = {"bf16": "bf16", "fp8": "fp8", "fp8_block": "fp8"}
_FIRST_BF16 = 8.0
"""Compute capability; engines serve in fp16 what older GPUs would have to emulate."""
_TURNS = 6.0  # sets of weights in turn, of the tables' benchmarks
_COLD = 1e6  # so many that no cache holds them


class OperatorSource(Protocol):
    """Measured operators of one machine; None where there is no table."""

    def gemm(self, dtype: str) -> MeasuredOperators | None: ...
    def decode(self, cache: str) -> MeasuredOperators | None: ...
    def prefill(self, cache: str) -> MeasuredOperators | None: ...
    def moe(self, dtype: str, routing: str) -> MeasuredOperators | None: ...
    def all_reduce(self) -> MeasuredOperators | None: ...


@dataclass
class OperatorModel:
    """Times on `machine`; `tables` are of `measured_on`, which is the machine itself or its kin.

    routing   how tokens choose experts, one of the tables' distributions
    left_out  as if no kernel but one large product and one copy had been measured on the machine
    briefly   as the tables' benchmarks run kernels, not as a step does
    """

    machine: Profile
    tables: OperatorSource | None = None
    measured_on: Profile | None = None
    routing: str = "power_law_1.2"
    left_out: bool = False
    briefly: bool = False
    used: dict[str, str] = field(default_factory=dict)
    """By class, the table that was used, as operators are asked for."""

    def __post_init__(self) -> None:
        here = measured_gpu(self.machine)
        self._own, self._kin = "" if self.left_out else here.own, here.kin
        warm, brief = achieved(self.machine)
        self._numbers = brief if self.briefly else warm
        self._there = brief if self.measured_on is None else achieved(self.measured_on)[1]
        self._grids: dict[tuple[object, ...], LogGrid] = {}

    @property
    def own(self) -> bool:
        """Whether the tables are of the machine itself."""
        return self.measured_on is not None and self.measured_on.name == self.machine.name

    def basis(self, kind: str) -> str:
        """How a class of operators is known that has been asked for."""
        if kind not in self.used:
            return FORM
        return MEASURED if self.own else FAMILY

    def gemm(self, dtype: str, m: F64, n: F64 | float, k: F64 | float) -> F64:
        """ns of products of `m` rows with a matrix of n outputs and k inputs."""
        found = self.tables.gemm(dtype) if self.tables else None
        dims = dict(zip("mnk", np.broadcast_arrays(m, np.float64(n), np.float64(k)), strict=True))
        form = self._form("gemm", dtype, dims)
        if found is None:
            return form * self._shipped("gemm", self._kind(dtype), dims)
        self.used["gemm"] = found.source
        key = ("gemm", dtype)
        if key not in self._grids:
            self._grids[key] = grid([found.dims[axis] for axis in "mnk"], self._residual("gemm", dtype, found))
        return form * np.exp(self._grids[key].at([*dims.values()]))

    def decode(self, cache: str, b: F64, kv: F64, heads: int, kv_heads: int, dim: int) -> F64:
        """ns of the attention of b requests, one query each against `kv` keys, in one layer."""
        return self._attention("decode", cache, {"b": b, "kv": kv}, heads, kv_heads, dim)

    def prefill(self, cache: str, b: F64, q: F64, heads: int, kv_heads: int, dim: int) -> F64:
        """ns of the attention of b prompts of q tokens each, which see themselves, in one layer."""
        return self._attention("prefill", cache, {"b": b, "q": q}, heads, kv_heads, dim)

    def moe(self, dtype: str, tokens: F64, hidden: int, inner: int, topk: int, experts: int, ways: int) -> F64:
        """ns of one layer's experts, of each a `ways`-th part on this GPU."""
        found = self.tables.moe(dtype, self.routing) if self.tables else None
        full = np.ones_like(tokens)
        sizes = {"hidden": hidden, "inner": inner / ways, "topk": topk, "experts": experts}
        dims = {"tokens": tokens, **{name: size * full for name, size in sizes.items()}}
        form = self._form("moe", dtype, dims)
        if found is None:
            return form * self._shipped("moe", "bf16", dims)
        self.used["moe"] = found.source
        near = _nearest(found, {"hidden": hidden, "inner": inner, "topk": topk, "experts": experts, "ways": ways})
        near = MeasuredOperators({**near.dims, "inner": near.dims["inner"] / near.dims["ways"]}, near.ns, near.source)
        return form * np.exp(grid([near.dims["tokens"]], self._residual("moe", dtype, near)).at([tokens]))

    def all_reduce(self, ranks: int, size: F64) -> F64 | None:
        """ns of all-reduces of so many bytes; None where the machine itself has no table of so many ranks."""
        found = self.tables.all_reduce() if self.tables and self.own else None
        if found is None or not (found.dims["ranks"] == ranks).any():
            return None
        self.used["all_reduce"] = found.source
        own = found.where(found.dims["ranks"] == ranks)
        most = float(own.dims["bytes"].max())
        known = np.exp(grid([own.dims["bytes"]], np.log(own.ns)).at([np.clip(size, 1.0, most)]))
        return np.asarray(known * np.maximum(size / most, 1.0), np.float64)

    def stream(self, moved: F64, normed: bool = False) -> F64:
        """ns of kernels that move so many bytes; `normed`: and reduce rows or compute functions of them."""
        fit = fits()["layer_norm" if normed else "elementwise add", "fp32"].coefficients
        return predict(fit, Work.of(np.zeros_like(moved), moved), Rates.of(self._numbers, "bf16"))

    def _form(self, what: str, dtype: str, dims: Dims, measured: Numbers | None = None) -> F64:
        """ns of the form, as a step runs kernels; `measured`: as they were measured on a GPU of these numbers."""
        kind, brief = self._kind(dtype), self.briefly or measured is not None
        numbers = measured or self._numbers
        done = work(what, dict(dims), _SIZE[dtype], _TURNS if brief else _COLD)
        return predict(_coefficients(what, kind), done, Rates.of(numbers, kind))

    def _residual(self, what: str, dtype: str, found: MeasuredOperators) -> F64:
        return np.asarray(np.log(found.ns / self._form(what, dtype, found.dims, self._there)), np.float64)

    def _attention(self, kind: str, cache: str, of: Dims, heads: int, kv_heads: int, dim: int) -> F64:
        found = getattr(self.tables, kind)(cache) if self.tables else None
        what, length = ("decode", "kv") if kind == "decode" else ("attention causal", "q")
        b, lengths = np.broadcast_arrays(of["b"], of[length])
        dims = _attention_dims(kind, {"b": b, length: lengths}, float(heads), float(kv_heads), float(dim))
        form = self._form_of_attention(what, cache, dims, self._numbers)
        if found is None:
            return form * self._shipped(what, "bf16", dims)
        self.used[kind] = found.source
        widths = np.unique(found.dims["dim"])
        width = widths[np.abs(np.log(widths / dim)).argmin()]
        groups = np.unique(found.dims["kv_heads"][found.dims["dim"] == width])
        groups = groups[groups <= found.dims["heads"].max()]
        near = groups[np.abs(np.log(groups / kv_heads)).argmin()]  # so many keys of fewer requests are the same work
        key = (kind, cache, float(width), float(near))
        if key not in self._grids:
            own = found.where((found.dims["dim"] == width) & (found.dims["kv_heads"] == near))
            measured = _attention_dims(kind, own.dims, own.dims["heads"], own.dims["kv_heads"], own.dims["dim"])
            residual = np.log(own.ns / self._form_of_attention(what, cache, measured, self._there))
            self._grids[key] = grid([own.dims["heads"], own.dims["b"], own.dims[length]], residual)
        split = kv_heads / near
        return form * np.exp(self._grids[key].at([np.array(heads / split), b * split, lengths]))

    def _form_of_attention(self, what: str, cache: str, dims: Dims, numbers: Numbers) -> F64:
        done = work(what, dict(dims), 2, 1.0)
        if cache == "fp8":  # keys and values of half the bytes, products in 16 bits
            done = replace(done, moved=done.moved / 2, touched=done.touched / 2)
        return predict(_coefficients(what, "bf16"), done, Rates.of(numbers, self._kind("bf16")))

    def _kind(self, dtype: str) -> str:
        """The kernels' element type, as the kernel-time model names it."""
        kind = _FORM[dtype]
        return "fp16" if kind == "bf16" and float(self.machine.gpu.compute_capability) < _FIRST_BF16 else kind

    def _shipped(self, what: str, dtype: str, dims: Dims) -> F64:
        """The factor of the kernel-time model's own corrections, of this machine or its kin."""
        fit = fits()[what, dtype]
        gpu = next((name for name in (self._own, *self._kin) if name in fit.gpus), "")
        if not gpu or not all(axis in dims for axis in fit.axes):
            return np.ones_like(next(iter(dims.values())))
        points = np.stack(np.broadcast_arrays(*(dims[axis] for axis in fit.axes)), axis=-1)
        factor = np.exp(table(what, dtype, gpu).at(points.reshape(-1, len(fit.axes)) * 1024))
        return np.asarray(factor.reshape(points.shape[:-1]), np.float64)


def kin(machine: Profile) -> list[str]:
    """Machines with tables, the nearest first, that run the same kernels: of one compute capability and kind of memory.

    Of GPUs with HBM the first number of the capability counts, when there are none of the same.
    """
    def near(other: Profile, digits: int) -> bool:
        a, b = machine.gpu.compute_capability, other.gpu.compute_capability
        return a.split(".")[:digits] == b.split(".")[:digits] and machine.memory.kind[:3] == other.memory.kind[:3]

    others = [catalogue.load(name) for name in SYSTEMS if name != machine.name]
    hbm = machine.memory.kind.startswith("HBM")
    found = [p for p in others if near(p, 2)] or [p for p in others if hbm and near(p, 1)]
    bandwidth = float(machine.memory.bandwidth.value)
    return [p.name for p in sorted(found, key=lambda p: abs(np.log(float(p.memory.bandwidth.value) / bandwidth)))]


def achieved(machine: Profile) -> tuple[Numbers, Numbers]:
    """The rates that products reach on a warm GPU, and in short benchmarks; of its kin where none were measured on it."""
    here = measured_gpu(machine)
    if here.own:
        return here.numbers, _in_short_runs(here.numbers, here.own)
    kin = next((name for name in here.kin if name in rates()), "")
    if not kin or not here.numbers.hbm:  # cards without HBM differ in power limits more than in processors
        return here.numbers, here.numbers
    there = measured_gpu(catalogue.load(kin)).numbers
    return _alike(here.numbers, there), _alike(here.numbers, _in_short_runs(there, kin))


def _alike(gpu: Numbers, measured: Numbers) -> Numbers:
    """A machine's numbers with the shares of its vendor's rates that another one was measured to reach."""
    share = {name: measured.peak[name] / rate for name, rate in measured.nominal_peak.items() if name in measured.peak}
    peak = {name: rate * share.get(name, 1.0) for name, rate in gpu.nominal_peak.items()}
    bandwidth = gpu.nominal_bandwidth * measured.bandwidth / measured.nominal_bandwidth
    return replace(gpu, peak={**gpu.peak, **peak}, bandwidth=bandwidth)


def _in_short_runs(gpu: Numbers, measured: str) -> Numbers:
    """A machine's numbers with the rates that short benchmarks of it, under the name `measured`, reached."""
    found = rates().get(measured, {})
    peak = {name: rate for name, rate in found.items() if name in gpu.nominal_peak}
    if "bf16" in peak and "fp16" in gpu.nominal_peak:
        peak.setdefault("fp16", peak["bf16"])
    return replace(gpu, peak={**gpu.peak, **peak})


def _coefficients(what: str, dtype: str) -> ClassCoefficients:
    return (fits().get((what, dtype)) or fits()[what, "bf16"]).coefficients


def _attention_dims(kind: str, of: Dims, heads: F64 | float, kv_heads: F64 | float, dim: F64 | float) -> dict[str, F64]:
    full = np.ones_like(of["b"])
    dims = {"b": of["b"], "heads": heads * full, "kv_heads": kv_heads * full, "dim": dim * full}
    if kind == "decode":
        return {**dims, "kv": of["kv"]}
    return {**dims, "q": of["q"], "kv": of["q"], "causal": full}


def _nearest(found: MeasuredOperators, wanted: Mapping[str, float]) -> MeasuredOperators:
    """The rows of the combination of dimensions that is nearest in logarithms."""
    away = np.zeros(len(found.ns))
    for name, value in wanted.items():
        away += np.abs(np.log(found.dims[name] / value))
    return found.where(away <= away.min() + 1e-9)
