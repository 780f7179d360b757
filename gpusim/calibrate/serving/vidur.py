"""Operators that Vidur measured in vLLM (microsoft/vidur @7d475133, data/profiling, MIT) against what is said of them here.

Products of Llama 2 7B and Llama 3 8B on one to eight GPUs, and the kernels that no serving table has: norms, activations,
rotations, additions.  Nothing of this is fitted to them.
"""

from __future__ import annotations

import csv
import gzip
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from gpusim.calibrate.serving.slices import HeldOut
from gpusim.machine import catalogue
from gpusim.machine.serving.build import operator_model
from gpusim.machine.serving.operators import OperatorModel

F64 = npt.NDArray[np.float64]
RULE = "Vidur"
FILES = {
    "a100_Llama-2-7b_mlp": "a100-sxm4-80gb", "a100_Llama-3-8B_mlp": "a100-sxm4-80gb", "h100_Llama-2-7b_mlp": "h100-sxm-80gb",
    "a40_Llama-2-7b_mlp": "a40",
}  # fmt: skip
"""Table -> the machine that it was measured on."""
Rows = list[dict[str, str]]


def measured(vidur: Path, folder: Path) -> Iterator[HeldOut]:
    """Each table, by class; `vidur`: the folder of its files, `folder`: aiconfigurator's."""
    for name, gpu in FILES.items():
        with gzip.open(vidur / f"{name}.csv.gz", "rt", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        operators = operator_model(catalogue.load(gpu), "vllm", "", folder)
        for ways in sorted({int(row["num_tensor_parallel_workers"]) for row in rows}):
            own = [row for row in rows if int(row["num_tensor_parallel_workers"]) == ways]
            for kind, log in _compared(operators, own, ways):
                yield HeldOut(RULE, gpu, "vllm", kind, "fp16", log)


def _compared(operators: OperatorModel, rows: Rows, ways: int) -> Iterator[tuple[str, F64]]:
    """(class, log of stated over measured) of each operator of a layer."""
    m = np.array([float(row["num_tokens"]) for row in rows])
    width, inner = int(rows[0]["n_embd"]), int(rows[0]["n_expanded_embd"]) // ways
    size = width // int(rows[0]["n_head"])
    heads, kv_heads = (max(int(rows[0][name]) // ways, 1) for name in ("n_head", "n_kv_head"))
    products = {
        "attn_pre_proj": ((heads + 2 * kv_heads) * size, width), "attn_post_proj": (width, heads * size),
        "mlp_up_proj": (2 * inner, width), "mlp_down_proj": (width, inner),
    }  # fmt: skip
    for name, (n, k) in products.items():
        yield "gemm", np.log(operators.gemm("bf16", m, n, k) / _ns(rows, name))
    streams = {
        "input_layernorm": ("norm", 4 * width, True), "post_attention_layernorm": ("norm", 4 * width, True),
        "mlp_act": ("activation", 6 * inner, True), "attn_rope": ("rotation", 4 * (heads + kv_heads) * size, False),
        "add": ("addition", 6 * width, False),
    }  # fmt: skip
    for name, (kind, moved, normed) in streams.items():
        yield kind, np.log(operators.stream(moved * m, normed) / _ns(rows, name))


def _ns(rows: Rows, name: str) -> F64:
    return np.array([float(row[f"time_stats.{name}.median"]) * 1e6 for row in rows])
