"""The errors of kernel times: shapes that were left out on GPUs that were fitted, and GPUs that were left out.

Errors are model / measured - 1 over rows: median and 90th percentile of the size, and the signed median.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from gpusim.calibrate.kernel_times.before import former
from gpusim.calibrate.kernel_times.fit import BYTES, FittedClass, fit, measured_numbers
from gpusim.calibrate.kernel_times.gpus import nominal
from gpusim.calibrate.kernel_times.rows import Rows
from gpusim.machine.kernels.numbers import Numbers
from gpusim.machine.kernels.shapes import work

F64 = npt.NDArray[np.float64]


SEEN, LEFT_OUT = "seen", "left out"
_TENSOR, _STREAMING = ("bf16", "fp8"), ("elementwise", "layer_norm", "softmax")
GOALS = (
    ("GEMM bf16 and fp8", SEEN, ("gemm",), _TENSOR, 5, 15),
    ("GEMM bf16 and fp8, other family", LEFT_OUT, ("gemm",), _TENSOR, 15, 40),
    ("fp32 linear and bmm", LEFT_OUT, ("gemm", "bmm"), ("fp32",), 15, 35),
    ("memory-bound above 100 us", SEEN, _STREAMING, ("fp32",), 5, 15),
    ("memory-bound above 100 us", LEFT_OUT, _STREAMING, ("fp32",), 8, 25),
    ("convolution", SEEN, ("conv",), ("fp32", "fp16"), 12, 40),
    ("convolution", LEFT_OUT, ("conv",), ("fp32", "fp16"), 20, 50),
    ("attention", SEEN, ("attention", "decode"), ("bf16",), 8, 25),
    ("attention", LEFT_OUT, ("attention", "decode"), ("bf16",), 12, 35),
)
"""Set, table, kinds, types, and the goal for median and p90 in per cent."""
_FEW = 5  # rows below which an error says nothing


@dataclass(frozen=True)
class Score:
    """One line of a table."""

    table: str
    what: str
    dtype: str
    gpu: str
    rows: int
    model: tuple[float, float, float]
    """Median, p90, signed median."""
    physics: tuple[float, float, float]
    today: tuple[float, float, float]
    roofline: tuple[float, float, float]
    fitted: str
    off: F64
    """Of each row."""
    inside: float = np.nan
    """Share of the rows within the interval that the rows of the other GPUs give, which is meant to hold 0.8 of them."""


def errors(model: F64, measured: F64) -> tuple[float, float, float]:
    """Median and p90 of |model / measured - 1|, and the signed median."""
    return _summary(model / measured - 1)


def _summary(off: F64) -> tuple[float, float, float]:
    return float(np.median(np.abs(off))), float(np.quantile(np.abs(off), 0.9)), float(np.median(off))


def kin(gpu: str, others: tuple[str, ...], gpus: dict[str, Numbers]) -> str:
    """The GPU among others whose table applies: the same capability, kind of memory and power; "" if there is none."""

    def kind(name: str) -> tuple[float, bool, bool]:
        return gpus[name].capability, gpus[name].hbm, gpus[name].power_bound

    own = gpus[gpu]
    alike = [o for o in others if o != gpu and kind(o) == kind(gpu)]
    return min(alike, key=lambda o: abs(np.log(gpus[o].bandwidth / own.bandwidth)), default="")


def groups(tables: list[Rows]) -> list[list[Rows]]:
    """Tables that are fitted together: of one class and type, whose sources differ in the floor alone."""
    found: dict[tuple[str, str], list[Rows]] = {}
    for rows in tables:
        found.setdefault((rows.what, rows.dtype), []).append(rows)
    return list(found.values())


def score(tables: list[Rows]) -> list[Score]:
    """Both tables, by class, type and GPU."""
    gpus = measured_numbers(tables)
    lines = []
    for group in groups(tables):
        names = tuple(sorted({g for rows in group for g in rows.gpu.tolist()}))
        everything = fit(group, gpus)
        own = {name: name for name in names}
        seen, left = list[Score](), list[Score]()
        for name in names:
            seen += _lines(SEEN, group, name, everything, own, gpus, "all, held-out shapes apart")
        for name in names if len(names) > 1 else ():
            others = fit(group, gpus, {name: False})
            like = {name: kin(name, tuple(others.tables), gpus)}
            left += _lines(LEFT_OUT, group, name, others, like, gpus, " ".join(others.gpus))
        lines += [*_covered(seen), *_covered(left)]
    return lines


def _covered(lines: list[Score]) -> list[Score]:
    """The lines with `inside`."""
    out = []
    for line in lines:
        others = [-np.log1p(other.off) for other in lines if other.gpu != line.gpu]
        if others:
            low, high = np.quantile(np.concatenate(others), (0.1, 0.9))
            log = -np.log1p(line.off)
            line = replace(line, inside=float(np.mean((log >= low) & (log <= high))))
        out.append(line)
    return out


def _lines(
    table: str, group: list[Rows], gpu: str, done: FittedClass, like: dict[str, str], gpus: dict[str, Numbers], fitted: str
) -> list[Score]:
    out = []
    for rows in group:
        here = rows.take((rows.gpu == gpu) & (rows.held if table == SEEN else np.ones(len(rows), bool)))
        if len(here) < _FEW:
            continue
        models = (done.predict(here, gpus, like), done.predict(here, gpus), today(here), roofline(here))
        e = [errors(model, here.time) for model in models]
        off = models[0] / here.time - 1
        out.append(Score(table, rows.what, rows.dtype, gpu, len(here), e[0], e[1], e[2], e[3], fitted, off))
    return out


def roofline(rows: Rows) -> F64:
    """(N,) ns: the larger of flops at the vendor's peak and bytes at the vendor's bandwidth."""
    w = work(rows.what, rows.dims, BYTES[rows.dtype])
    out = np.zeros(len(rows))
    for name in set(rows.gpu.tolist()):
        gpu, here = nominal(name), rows.gpu == name
        peak = gpu.nominal_peak.get(gpu.rate(rows.dtype)[1], gpu.nominal_peak["fp32"])
        out[here] = np.maximum(w.flops[here] / peak, w.moved[here] / gpu.nominal_bandwidth) * 1e9
    return out


def today(rows: Rows) -> F64:
    """(N,) ns by the model before this one, with the coefficients that it took for the GPU."""
    w = work(rows.what, rows.dims, BYTES[rows.dtype])
    kind = rows.what.split()[0]
    what = {"layer_norm": "norm", "softmax": "norm"}.get(kind, "act" if rows.what.split()[-1] in _ACT else "add")
    if w.flops.any():
        what = "gemm"
    known, out = former(), np.zeros(len(rows))
    for name in set(rows.gpu.tolist()):
        gpu, here = nominal(name), rows.gpu == name
        like = name if name in known else "a40" if not gpu.hbm else "h100-sxm-80gb" if gpu.capability >= 9 else "a100-sxm4-80gb"
        peak = gpu.nominal_peak.get(gpu.rate(rows.dtype)[1], gpu.nominal_peak["fp32"])
        c = known[like][what]
        out[here] = c.predict(w.flops[here], w.moved[here], peak, gpu.nominal_bandwidth, gpu.cache)
    return out


_ACT = ("gelu", "silu", "relu", "tanh")


def text(lines: list[Score]) -> str:
    """All in Markdown: per cent, median / p90 (signed median); first by goal, all rows of a set together."""
    out = ["| set | goal | all rows | by GPU, median / p90 |", "| --- | --- | --- | --- |"]
    for name, table, kinds, types, median, p90 in GOALS:
        own = [line for line in lines if line.table == table and line.what.split()[0] in kinds and line.dtype in types]
        if own:
            each: list[str] = []
            for gpu in sorted({line.gpu for line in own}):
                off = np.concatenate([line.off for line in own if line.gpu == gpu])
                each.append(f"{gpu} {_cell(_summary(off))}")
            every = _cell(_summary(np.concatenate([line.off for line in own])))
            out.append(f"| {name}, {table} | {median} / {p90} | {every} | {', '.join(each)} |")
    for table in (SEEN, LEFT_OUT):
        out += [
            "",
            f"| {table} | type | GPU | rows | model | inside, % | physical form | before | nominal roofline | fitted on |",
            "| --- | --- | --- | ---: | --- | ---: | --- | --- | --- | --- |",
        ]
        for s in (line for line in lines if line.table == table):
            inside = "-" if np.isnan(s.inside) else f"{100 * s.inside:.0f}"
            cells = " | ".join([_cell(s.model), inside, *(_cell(e) for e in (s.physics, s.today, s.roofline))])
            out.append(f"| {s.what} | {s.dtype} | {s.gpu} | {s.rows} | {cells} | {s.fitted} |")
    return "\n".join(out)


def _cell(error: tuple[float, float, float]) -> str:
    median, p90, signed = (100 * e for e in error)
    return f"{median:.1f} / {p90:.0f} ({signed:+.1f})"
