"""The kernels of a trace's operators as columns: class, type and work of each, and its place in a correction.

Operators alike in name, type, shape, flops and bytes are looked at once.  Of one whose shape is not known the kernel is that of
its name, and a product counts as one of a cube's sides.  Weights come from memory when a product reads them, since the rest of
the program ran in between; other operators find in the cache what the one before left there.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import lru_cache
from math import prod
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from gpusim.machine.kernels.classes import ClassedKernel, class_of, kernels
from gpusim.machine.kernels.shapes import Work
from gpusim.trace.shapes import Dims, parse
from gpusim.trace.trace import Trace

F64 = npt.NDArray[np.float64]
I64 = npt.NDArray[np.int64]

PRODUCTS = ("gemm", "bmm", "conv", "attention", "decode", "moe")
"""Kinds, the first words of classes, that compute; all others stream."""
_WEIGHTS = ("gemm", "conv", "moe")
_WORK = tuple(f.name for f in fields(Work))
_GATHERS = ("gather",)  # read only the rows they write, not the whole table


@dataclass(frozen=True)
class KernelGroup:
    """Kernels of one class and type."""

    what: str
    dtype: str
    """As the trace names it."""
    operator: I64
    """(N,) the operator that launches each, among those that are distinct."""
    work: Work
    places: tuple[dict[str, float], ...] | None
    """Dimensions by name; None where shapes are not known."""


def kind(what: str) -> str:
    """The first word of a class."""
    return what.split(" ", 1)[0]


def is_product(name: str) -> bool:
    """Whether an operator of this name is a matrix product, an attention or a convolution."""
    return kind(class_of(name)) in PRODUCTS


class Described(NamedTuple):
    """A trace's operators: (D,) the first of those that are alike, (O,) which each is like, and the kernels of the first."""

    first: I64
    which: I64
    groups: list[KernelGroup]


def described(trace: Trace) -> Described:
    """The same for every machine, and kept as long as the trace is."""
    found = _DESCRIBED.get(trace)
    if found is None:
        first, which = distinct(trace)
        found = _DESCRIBED[trace] = Described(first, which, groups(trace, first))
    return found


_DESCRIBED: WeakKeyDictionary[Trace, Described] = WeakKeyDictionary()


def distinct(trace: Trace) -> tuple[I64, I64]:
    """(D,) the first of operators that are alike in all that decides their time, and (O,) which of them each is like."""
    columns = (trace.op, trace.dtype, trace.shape, trace.flops.view(np.int64), trace.read_bytes, trace.written_bytes)
    mixed = np.zeros(trace.ops, np.uint64)
    for column in columns:
        mixed = (mixed ^ column.astype(np.int64).view(np.uint64)) * np.uint64(0x9E3779B97F4A7C15)
        mixed ^= mixed >> np.uint64(29)
    _, first, which = np.unique(mixed, return_index=True, return_inverse=True)
    if any((column[first][which] != column).any() for column in columns):  # two that differ were mixed to one number
        _, first, which = np.unique(np.stack(columns, axis=1), axis=0, return_index=True, return_inverse=True)
    return first.astype(np.int64), which.reshape(-1).astype(np.int64)


def groups(trace: Trace, rows: I64) -> list[KernelGroup]:
    """The kernels of these operators of the trace, by class and type."""
    shaped = trace.shape[rows] >= 0
    everything = float(trace.size.sum())
    return [
        *_of_shapes(trace, rows, np.flatnonzero(shaped), everything),
        *_of_names(trace, rows, np.flatnonzero(~shaped), everything),
    ]


def _dtype(trace: Trace, row: int) -> str:
    return trace.dtypes[trace.dtype[row]] if trace.dtype[row] >= 0 else "float32"


def _of_names(trace: Trace, rows: I64, at: I64, everything: float) -> list[KernelGroup]:
    """Of operators without shapes: those alike in name and type are one vector operation."""
    pairs = trace.op[rows[at]].astype(np.int64) * (len(trace.dtypes) + 1) + trace.dtype[rows[at]] + 1
    order = np.argsort(pairs, kind="stable")
    found = []
    for some in np.split(order, np.flatnonzero(np.diff(pairs[order])) + 1) if len(at) else ():
        of = rows[at[some]]
        what = class_of(trace.op_names[trace.op[of[0]]])
        flops, written = trace.flops[of], trace.written_bytes[of]
        read = np.minimum(trace.read_bytes[of], written) if what in _GATHERS else trace.read_bytes[of]
        moved = (read + written).astype(np.float64)
        if kind(what) in PRODUCTS:
            side = np.maximum(np.cbrt(flops / 2), 1.0)
            touched = np.maximum(moved, everything) if kind(what) in _WEIGHTS else moved
            work = Work.of(flops, moved, touched=touched, loop=side, rows=side, columns=side)
        else:
            work = Work.of(flops, moved)
        found.append(KernelGroup(what, _dtype(trace, of[0]), at[some], work, None))
    return found


def _of_shapes(trace: Trace, rows: I64, at: I64, everything: float) -> list[KernelGroup]:
    lists: dict[tuple[str, str], tuple[list[int], list[ClassedKernel], list[dict[str, float]]]] = {}
    for i in at.tolist():
        row = rows[i]
        name, text = trace.op_names[trace.op[row]], trace.shapes[trace.shape[row]]
        read, written = float(trace.read_bytes[row]), float(trace.written_bytes[row])
        if class_of(name) in _GATHERS:
            read = min(read, written)
        for kernel in _kernels(name, _dtype(trace, row), text, float(trace.flops[row]), read, written):
            what = _exact(kernel)
            own = lists.setdefault((what, kernel.dtype), ([], [], []))
            own[0].append(i)
            own[1].append(kernel)
            own[2].append(_place(kind(what), text, kernel))
    found = []
    for (what, dtype), (owners, made, places) in lists.items():
        table = np.array([k[2:] for k in made], np.float64).reshape(len(made), len(_WORK))
        work = {name: table[:, i].copy() for i, name in enumerate(_WORK)}
        if kind(what) in _WEIGHTS:
            work["touched"] = np.maximum(work["touched"], everything)
        found.append(KernelGroup(what, dtype, np.array(owners, np.int64), Work(**work), tuple(places)))
    return found


_kernels = lru_cache(maxsize=1 << 17)(kernels)


def _exact(kernel: ClassedKernel) -> str:
    """Attention by what its queries see: the measured classes tell these apart."""
    if kernel.what != "attention":
        return kernel.what
    if kernel.rows == 1:
        return "decode"
    return "attention causal" if kernel.special < kernel.batch * kernel.rows * kernel.loop else "attention"


@lru_cache(maxsize=1 << 16)
def _place(kind: str, text: str, kernel: ClassedKernel) -> dict[str, float]:
    """The dimensions of a kernel by the names that corrections use; {} where there are none for its class."""
    if kind == "gemm":
        return {"m": kernel.rows, "n": kernel.columns, "k": kernel.loop}
    if kind == "bmm":
        return {"b": kernel.batch, "m": kernel.rows, "n": kernel.columns, "k": kernel.loop}
    tensors = [item for item in parse(text).inputs if isinstance(item, tuple)]
    if kind in ("attention", "decode") and len(tensors) > 1 and len(tensors[0]) == len(tensors[1]) == 4:
        return _attention(kernel, tensors[0], tensors[1])
    if kind == "conv" and len(tensors) > 1 and len(tensors[-1]) > 2 and len(tensors[0]) == 4:
        w = next(t for t in reversed(tensors) if len(t) > 2)
        stride = (parse(text).numbers("stride") or (1,))[0]
        pixels = kernel.loop if kernel.what.startswith("conv wgrad") else kernel.rows
        if kernel.what.startswith("conv dgrad"):
            pixels /= stride**2
        return {"pixels": pixels, "cin": float(w[1]), "cout": float(w[0]), "r": float(prod(w[2:])), "stride": float(stride)}
    return {}


def _attention(kernel: ClassedKernel, query: Dims, key: Dims) -> dict[str, float]:
    return {
        "b": float(query[0]), "q": kernel.rows, "kv": kernel.loop, "heads": float(query[1]), "kv_heads": float(key[1]),
        "dim": float(query[3]),
    }  # fmt: skip
