"""The fit of one class: coefficients that all GPUs share, then what is left between shapes on each GPU."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import numpy as np
import numpy.typing as npt

from gpusim.calibrate.kernel_times.gpus import measured_peak, nominal
from gpusim.calibrate.kernel_times.least_squares import minimise
from gpusim.calibrate.kernel_times.rows import Rows, source_of
from gpusim.machine.kernels.correction import Lattice, build
from gpusim.machine.kernels.numbers import Numbers
from gpusim.machine.kernels.physics import ClassCoefficients, Rates, predict
from gpusim.machine.kernels.shapes import Dims, Work, work

F64 = npt.NDArray[np.float64]

BYTES = {"fp32": 4, "fp16": 2, "bf16": 2, "fp8": 1}
MOST = 3000
"""Rows of one source that a fit of coefficients looks at, drawn evenly."""

_PRODUCT = ("floor", "compute", "fill", "tile", "memory", "chain", "growth", "blend")
_STREAM = ("floor", "memory")
FREE = {
    "gemm": (*_PRODUCT, "before"),
    "bmm": _PRODUCT,
    "conv": (*_PRODUCT, "fast"),
    "attention": (*_PRODUCT, "special"),
    "decode": _PRODUCT,
    "moe": _PRODUCT,
    "elementwise": _STREAM,
    "layer_norm": _STREAM,
    "softmax": _STREAM,
    "quantise": (*_STREAM, "chain", "growth"),
}
"""ClassCoefficients that are fitted, by kind; the others say nothing there."""
NEUTRAL = ClassCoefficients(floor=0, fill=0, tile=0, fast=0, chain=0, blend=2)
"""Where a coefficient is not fitted."""
_BOUNDS = {  # lowest, start, highest
    "floor": (300, 2000, 100e3),
    "compute": (0.3, 1, 1.5),
    "fill": (1, 80, 2e3),
    "tile": (1, 64, 2e3),
    "fast": (0.2, 0.7, 1.5),
    "special": (0.01, 0.7, 4),
    "memory": (0.3, 1, 1.3),
    "before": (0.05, 1, 1.5),
    "chain": (10, 1000, 4e3),
    "growth": (0.1, 0.4, 1.2),
    "blend": (1.1, 1.7, 8),
}


@dataclass(frozen=True)
class FittedClass:
    """One class and element type."""

    coefficients: ClassCoefficients
    gpus: tuple[str, ...]
    """That were fitted."""
    rows: int
    tables: dict[str, Lattice]
    """By GPU: what the coefficients leave."""
    kind: str
    axes: tuple[str, ...]
    floors: dict[str, float]
    """By source: the kernel's floor and what the source's times have of a launch."""

    def predict(self, rows: Rows, gpus: dict[str, Numbers], tables: dict[str, str] | None = None) -> F64:
        """(N,) ns; `tables`: GPU of the rows -> GPU whose table corrects it (its own where there is one)."""
        c = replace(self.coefficients, floor=self.floors.get(rows.source, self.coefficients.floor))
        out = predict(c, _work(rows), _rates(rows, gpus))
        if tables is None:
            return out
        for gpu, of in tables.items():
            here = rows.gpu == gpu
            if of in self.tables and here.any():
                out[here] *= np.exp(self.tables[of].at(points(rows.take(here), self.axes)))
        return out


AXES = {
    "gemm": ("m", "n", "k"),
    "bmm": ("b", "m", "n", "k"),
    "conv": ("pixels", "cin", "cout", "r", "stride"),
    "attention": ("b", "q", "heads", "kv_heads", "dim"),
    "decode": ("b", "kv", "heads", "kv_heads", "dim"),
    "moe": ("tokens", "hidden", "inner", "topk", "experts"),
    "elementwise": ("rows", "width"),
    "layer_norm": ("rows", "width"),
    "softmax": ("rows", "width"),
    "quantise": ("m", "k"),
}
"""Dimensions of a correction, by kind."""
FINEST = {
    "gemm": (0.25, 0.5, 0.5),
    "bmm": (1.0, 0.5, 0.5, 0.5),
    "conv": (1.0, 1.0, 1.0, 0.0625, 0.0625),
    "attention": (0.5, 0.5, 0.5, 0.5, 0.0625),
    "decode": (0.5, 0.5, 0.5, 0.5, 0.0625),
    "moe": (0.5, 0.5, 0.5, 0.5, 0.5),
    "elementwise": (0.5, 0.5),
    "layer_norm": (0.5, 0.5),
    "softmax": (0.5, 0.5),
    "quantise": (0.25, 0.5),
}
"""Octaves of its finest level."""


def points(rows: Rows, axes: tuple[str, ...]) -> F64:
    """(N, D) coordinates of rows in a correction."""
    d: Dims = dict(rows.dims)
    if "pixels" in axes:
        d["pixels"] = d["b"] * (d["h"] / d["stride"]) ** 2
        d["r"] = d["r"] * d["s"]
    return np.stack([np.asarray(d[name]) * 1024 for name in axes], axis=1)


def fit(
    tables: list[Rows], gpus: dict[str, Numbers], where: dict[str, bool] | None = None, correct: bool = True
) -> FittedClass:
    """Fit what is not held out of `tables` (of one class and type) on GPUs for which `where` is not False."""
    used = []
    for rows in tables:
        left = np.array([(where or {}).get(gpu, True) and gpu in gpus for gpu in rows.gpu.tolist()])
        used.append(rows.take(left & ~rows.held))
    used = [rows for rows in used if len(rows)]
    steady = [rows.take(np.array([not gpus[gpu].power_bound for gpu in rows.gpu.tolist()])) for rows in used]
    steady = [rows for rows in steady if len(rows)] or used  # power-bound GPUs say nothing of others
    kind = used[0].what.split()[0]
    sources = sorted({rows.source for rows in steady})
    names = tuple(name for name in FREE[kind] if name not in ("floor", "fast"))
    names += ("fast",) if any(_work(rows).fast.any() for rows in steady) else ()
    parts = []
    for rows in steady:
        some = rows.take(np.arange(0, len(rows), max(1, len(rows) // MOST)))
        parts.append((_work(some), _rates(some, gpus), np.log(some.time), sources.index(rows.source)))

    def at(x: F64, source: int) -> ClassCoefficients:
        values = np.exp(x).tolist()
        return replace(NEUTRAL, floor=values[source], **dict(zip(names, values[len(sources) :], strict=True)))

    def residual(x: F64) -> F64:
        each = [at(x, i) for i in range(len(sources))]
        return np.concatenate([np.log(predict(each[source], w, r)) - t for w, r, t, source in parts])

    low, start, high = np.log([_BOUNDS[name] for name in ("floor",) * len(sources) + names]).T
    x, _ = minimise(residual, start, low, high)
    each = {source: rounded(at(x, i)) for i, source in enumerate(sources)}
    floors = {source: c.floor for source, c in each.items()}
    found = min(each.values(), key=lambda c: c.floor)
    for rows in used:
        floors.setdefault(rows.source, found.floor)
    axes = AXES[kind]
    done: dict[str, Lattice] = {}
    if correct:
        first = [rows for rows in used if rows.source == used[0].source]  # other sources' libraries differ
        plain = replace(found, floor=floors[used[0].source])
        for gpu in sorted({g for rows in first for g in rows.gpu.tolist()}):
            own = [rows.take(rows.gpu == gpu) for rows in first]
            own = [rows for rows in own if len(rows)]
            place = np.concatenate([points(rows, axes) for rows in own])
            left_over = np.concatenate([np.log(rows.time / predict(plain, _work(rows), _rates(rows, gpus))) for rows in own])
            done[gpu] = build(place, np.clip(left_over, -2, 2), FINEST[kind])
    names_of = tuple(sorted({g for rows in used for g in rows.gpu.tolist()}))
    return FittedClass(found, names_of, sum(map(len, used)), done, kind, axes, floors)


def measured_numbers(tables: list[Rows]) -> dict[str, Numbers]:
    """The GPUs of the rows with two kinds of rates measured: a large GEMM per precision, streaming."""
    peaks: dict[str, dict[str, float]] = {}
    bandwidth: dict[str, float] = {}
    for rows in tables:
        for gpu in sorted(set(rows.gpu.tolist())):
            if rows.what in ("gemm", "bmm") and (peak := measured_peak(rows, gpu)):
                known = peaks.setdefault(gpu, {})
                known[rows.dtype] = max(peak, known.get(rows.dtype, 0.0))  # the layout of the matrices that suits the GPU
            if rate := _streaming(rows, gpu):
                bandwidth.setdefault(gpu, rate)
    for gpu, like in _ALIKE.items():
        if like in peaks:
            peaks.setdefault(gpu, peaks[like])
            bandwidth.setdefault(gpu, bandwidth[like] * nominal(gpu).nominal_bandwidth / nominal(like).nominal_bandwidth)
    found = {}
    for gpu in sorted({g for rows in tables for g in rows.gpu.tolist()}):
        plain = nominal(gpu)
        measured = frozenset(peaks.get(gpu, {})) | ({"bandwidth"} if gpu in bandwidth else set())
        found[gpu] = replace(
            plain,
            peak={**plain.peak, **peaks.get(gpu, {})},
            bandwidth=bandwidth.get(gpu, plain.bandwidth),
            measured=frozenset(measured),
        )
    return found


_ALIKE = {"a100-pcie-80gb": "a100-pcie-40gb"}  # no GEMM of the first in the rows: the same processor


def _streaming(rows: Rows, gpu: str) -> float | None:
    """Bytes/s of the ten kernels that move most: of GEMMs with one row, which read their weights, or of additions."""
    own = rows.take((rows.gpu == gpu) & ~rows.held)
    if rows.what == "gemm" and rows.dtype == "bf16":
        own = own.take(own.dims["m"] == 1)
    elif rows.what != "elementwise add":
        return None
    if not len(own):
        return None
    moved = _work(own).moved
    most = np.argsort(-moved, kind="stable")[:10]
    return float(np.median(moved[most] / own.time[most]) * 1e9)


def _work(rows: Rows) -> Work:
    return work(rows.what, rows.dims, BYTES[rows.dtype], source_of(rows).turns)


def _rates(rows: Rows, gpus: dict[str, Numbers]) -> Rates:
    distinct, inverse = np.unique(rows.gpu, return_inverse=True)
    each = [Rates.of(gpus[name], rows.dtype) for name in distinct.tolist()]
    return Rates(*(np.concatenate([getattr(r, f.name) for r in each])[inverse] for f in fields(Rates)))


def rounded(c: ClassCoefficients) -> ClassCoefficients:
    """With four digits, as they are shipped."""
    return ClassCoefficients(**{f.name: float(f"{getattr(c, f.name):.4g}") for f in fields(ClassCoefficients)})
