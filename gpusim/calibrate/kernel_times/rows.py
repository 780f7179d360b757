"""Measured kernels as rows: class, dimensions, element type, GPU, time, and where they come from.

    gather(FOLDER)      all that may be fitted and scored; rows of GPUs that are kept back are refused with their file's name

Each GEMM table has one column per serving framework: one of them is used, never a mix.  Times of NeuSight have the launch in
them: its rows count above 100 us only.
"""

from __future__ import annotations

import csv
import gzip
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from gpusim.base.errors import GpusimError
from gpusim.calibrate.kernel_times.held_out import gpu_kept_back, shape_held_out
from gpusim.machine.kernels.shapes import Dims

F64 = npt.NDArray[np.float64]

LONGEST_LAUNCH = 100e3
"""ns: shorter rows of sources that time the launch as well say nothing of the kernel."""
SHORTEST = 1.2e3
"""ns: no kernel launched from a graph takes less."""

Row = tuple[str, str, str, dict[str, float], float]  # class, GPU, element type, dimensions, ns


@dataclass(frozen=True)
class Rows:
    """(N,) rows of one class, source and element type."""

    what: str
    dtype: str
    source: str
    files: tuple[str, ...]
    gpu: npt.NDArray[np.str_]
    dims: Dims
    time: F64
    """ns"""
    held: npt.NDArray[np.bool_]
    """Left out of fits by the draw of shapes."""

    def __len__(self) -> int:
        return len(self.time)

    def take(self, where: npt.NDArray[np.bool_] | npt.NDArray[np.int64]) -> Rows:
        """Those rows of them."""
        dims = {name: values[where] for name, values in self.dims.items()}
        return Rows(self.what, self.dtype, self.source, self.files, self.gpu[where], dims, self.time[where], self.held[where])


@dataclass(frozen=True)
class RowSource:
    """Files of one layout."""

    name: str
    files: str
    read: Callable[[dict[str, str]], Iterator[Row]]
    licence: str
    origin: str
    turns: float = 1.0
    """Sets of weights that the benchmark uses in turn."""
    least: float = SHORTEST


KEYS = {
    "gemm": ("n", "k"),
    "bmm": ("m", "n", "k"),
    "attention": ("heads", "kv_heads", "dim"),
    "decode": ("heads", "kv_heads", "dim"),
    "moe": ("hidden", "inner", "topk", "experts"),
    "conv": ("cin", "cout", "h", "r", "stride"),
}
"""The dimensions by whose hash shapes are left out, by kind; all dimensions where none are named."""

_STACK = "time_us_vllm"  # PyTorch's own cuBLAS calls, measured on all GPUs, and the least noisy column for small kernels


def _aic_gemm(row: dict[str, str]) -> Iterator[Row]:
    time = next((value for name, value in row.items() if name.startswith(_STACK)), "")
    yield "gemm", row["gpu"], row["dtype"], {name: float(row[name]) for name in "mnk"}, _ns(time)


def _aic_attention(row: dict[str, str]) -> Iterator[Row]:
    length, heads = float(row["isl"]), float(row["num_heads"])
    dims = {
        "b": float(row["batch_size"]), "q": length, "kv": length, "heads": heads,
        "kv_heads": float(row.get("num_key_value_heads", heads)), "dim": float(row["head_dim"]),
        "causal": float(row["op"] == "attn_context"),
    }  # fmt: skip
    what = "attention causal" if dims["causal"] else "attention"
    yield what, row["gpu"], row["dtype"], dims, _ns(row["time_us"])


def _aic_decode(row: dict[str, str]) -> Iterator[Row]:
    dims = {
        "b": float(row["batch_size"]), "kv": float(row["step"]) + 1, "heads": float(row["num_heads"]),
        "kv_heads": float(row["num_key_value_heads"]), "dim": float(row["head_dim"]),
    }  # fmt: skip
    yield "decode", row["gpu"], row["dtype"], dims, _ns(row["time_us"])


def _aic_moe(row: dict[str, str]) -> Iterator[Row]:
    split, here = float(row["moe_tp_size"]), float(row["moe_ep_size"])
    dims = {
        "tokens": float(row["num_tokens"]), "hidden": float(row["hidden_size"]), "inner": float(row["inter_size"]) / split,
        "topk": float(row["topk"]) / here, "experts": float(row["num_experts"]) / here,
    }  # fmt: skip
    yield "moe", row["gpu"], row["dtype"], dims, _ns(row["time_us"])


def _aic_quantise(row: dict[str, str]) -> Iterator[Row]:
    yield "quantise", row["gpu"], row["dtype"], {"m": float(row["m"]), "k": float(row["k"])}, _ns(row["time_us"])


def _neusight_product(row: dict[str, str]) -> Iterator[Row]:
    b, m, n, k = (float(row[name]) for name in ("B", "M", "N", "K"))
    if row["op"] == "linear":
        yield "gemm", row["gpu"], row["dtype"], {"m": b * m, "n": n, "k": k}, _ns(row["time_us"])
    else:
        yield "bmm", row["gpu"], row["dtype"], {"b": b, "m": m, "n": n, "k": k}, _ns(row["time_us"])


_VECTOR = {"ln": "layer_norm", "softmax": "softmax"}


def _neusight_vector(row: dict[str, str]) -> Iterator[Row]:
    what = _VECTOR.get(row["op"]) or f"elementwise {row['op']}"
    yield what, row["gpu"], row["dtype"], {"rows": float(row["B"]), "width": float(row["H"])}, _ns(row["time_us"])


def _neusight_conv(row: dict[str, str]) -> Iterator[Row]:
    side, window = float(row["Input_Size"]), float(row["kernel_size"])
    dims = {
        "b": float(row["B"]), "cin": float(row["Input_Channel"]), "cout": float(row["Output_Channel"]), "h": side, "w": side,
        "r": window, "s": window, "stride": float(row["Stride"]), "padding": float(row["Padding"]), "groups": 1.0,
    }  # fmt: skip
    yield "conv", row["gpu"], row["dtype"], dims, _ns(row["time_us"])


_DEEPBENCH_CONV = {"Forward": "conv", "wrt Inputs": "conv dgrad", "wrt Parameters": "conv wgrad"}
_DEEPBENCH_DTYPE = {"fp32": "fp32", "fp16-mixed": "fp16"}


def _deepbench(row: dict[str, str]) -> Iterator[Row]:
    dtype = _DEEPBENCH_DTYPE.get(row["dtype"])
    named = dict(pair.split("=", 1) for pair in row["params"].split(";"))
    named = {re.sub(r" \(.*\)", "", name).lower(): value for name, value in named.items()}
    if dtype is None or row["mode"] != "train":
        return
    if row["op"] == "Dense Matrix Multiplication":
        dims = {"m": float(named["n"]), "n": float(named["m"]), "k": float(named["k"])}
        yield "gemm", row["gpu"], dtype, dims, _ns(row["time_us"])
    what = _DEEPBENCH_CONV.get(row["what"].removesuffix(" (msec)"))
    if row["op"] == "Convolution" and what:
        dims = {
            "b": float(named["n"]), "cin": float(named["c"]), "cout": float(named["k"]), "h": float(named["h"]),
            "w": float(named["w"]), "r": float(named["r"]), "s": float(named["s"]), "stride": float(named["vertical stride"]),
            "padding": float(named["pad_h"]), "groups": 1.0,
        }  # fmt: skip
        if dtype == "fp32" and dims["r"] == dims["s"] == dims["stride"] == 1:
            what += " pointwise"
        yield what, row["gpu"], dtype, dims, _ns(row["time_us"])


def _ns(text: str) -> float:
    return float(text) * 1e3 if text else 0.0


_AIC = ("Apache-2.0", "ai-dynamo/aiconfigurator @ 095f58a51c, systems/data")
_NEUSIGHT = ("MIT", "trsharm25/NeuSight @ db1fdc9666")
_DEEPBENCH = ("Apache-2.0", "baidu-research/DeepBench @ da81ba7820, results")
SOURCES = (
    RowSource("aiconfigurator", "aic_gemm_*", _aic_gemm, *_AIC, turns=6.0),
    RowSource("aiconfigurator", "aic_attn_context_*", _aic_attention, *_AIC),
    RowSource("aiconfigurator", "aic_attn_encoder_*", _aic_attention, *_AIC),
    RowSource("aiconfigurator", "aic_attn_decode_*", _aic_decode, *_AIC),
    RowSource("aiconfigurator", "aic_moe_*", _aic_moe, *_AIC, turns=6.0),
    RowSource("aiconfigurator", "aic_computescale_*", _aic_quantise, *_AIC, least=0.1),
    RowSource("neusight", "neusight_linear_*", _neusight_product, *_NEUSIGHT, least=LONGEST_LAUNCH),
    RowSource("neusight", "neusight_bmm_*", _neusight_product, *_NEUSIGHT, least=LONGEST_LAUNCH),
    RowSource("neusight", "neusight_vec_*", _neusight_vector, *_NEUSIGHT, least=LONGEST_LAUNCH),
    RowSource("neusight conv", "neusight_conv_*", _neusight_conv, *_NEUSIGHT, least=LONGEST_LAUNCH),
    RowSource("deepbench", "deepbench*", _deepbench, *_DEEPBENCH, least=20e3),
)
"""What is read, in this order."""


def gather(folder: Path, classes: tuple[str, ...] = ()) -> list[Rows]:
    """All rows of the folder's files, by source, class and element type; `classes`: only files with one of these words."""
    found: dict[tuple[str, str, str], list[tuple[Row, str]]] = {}
    for source in SOURCES:
        if classes and not any(word in source.files for word in classes):
            continue
        for path in sorted(folder.glob(f"{source.files}.csv.gz")):
            with gzip.open(path, "rt", newline="") as file:
                for line in csv.DictReader(file):
                    for row in source.read(line):
                        if gpu_kept_back(row[1], source.name):
                            raise GpusimError(f"{path.name}: rows of '{row[1]}' are kept back from every fit")
                        if row[4] >= source.least:
                            found.setdefault((source.name, row[0], row[2]), []).append((row, path.name))
    return [_table(*key, rows) for key, rows in found.items()]


_LONG = 1e12  # flops: such a product alone brings a GPU to its power limit


def sustained(folder: Path) -> dict[str, float]:
    """By GPU: the share of the peak of short runs that is left when it is warm, for products of 16 bits.

    Of each large product three frameworks' runs were measured with the same library; they differ by the clock.  The share is
    that of the slowest run, the median over shapes.
    """
    found = {}
    for path in sorted(folder.glob("aic_gemm_*_bf16.csv.gz")):
        ratios: dict[str, list[float]] = {}
        with gzip.open(path, "rt", newline="") as file:
            for row in csv.DictReader(file):
                m, n, k = (float(row[name]) for name in "mnk")
                times = {name: float(value) for name, value in row.items() if name.startswith("time_us") and value}
                base = next((value for name, value in times.items() if name.startswith(_STACK)), 0.0)
                if 2 * m * n * k >= _LONG and base and not shape_held_out("gemm", (int(n), int(k))):
                    for name, value in times.items():
                        ratios.setdefault(name, []).append(base / value)
        if ratios:
            found[row["gpu"]] = min(float(np.median(values)) for values in ratios.values())
    return found


def source_of(rows: Rows) -> RowSource:
    """Where the rows come from."""
    return next(s for s in SOURCES if s.name == rows.source and Path(rows.files[0]).match(f"{s.files}.csv.gz"))


def _table(source: str, what: str, dtype: str, rows: list[tuple[Row, str]]) -> Rows:
    names = list(rows[0][0][3])
    dims = {name: np.array([row[3][name] for row, _ in rows]) for name in names}
    key = [dims[name] for name in KEYS.get(what.split()[0], tuple(names))]
    stacked = np.stack(key, axis=1)
    distinct, inverse = np.unique(stacked, axis=0, return_inverse=True)
    drawn = np.array([shape_held_out(what.split()[0], entry) for entry in distinct.tolist()])
    files = tuple(sorted({name for _, name in rows}))
    time, gpu = np.array([row[4] for row, _ in rows]), np.array([row[1] for row, _ in rows])
    return Rows(what, dtype, source, files, gpu, dims, time, drawn[inverse.ravel()])
