"""What type the elements of each tensor have: the type of the operator that writes it first, or of one that reads it."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from gpusim.base.compiled import kept
from gpusim.trace.columns import Accesses, accesses
from gpusim.trace.trace import I64, Trace

BYTES = {
    "float64": 8, "float32": 4, "bfloat16": 2, "float16": 2, "float8_e4m3fn": 1, "float8_e5m2": 1,
    "int64": 8, "int32": 4, "int16": 2, "int8": 1, "uint8": 1, "bool": 1,
}  # fmt: skip
FLOATING = tuple(name for name in BYTES if "float" in name)

# Outputs of another type than the operator's first, by position; operators by their name without "aten." and overload.
_STATISTICS = {1: "float32", 2: "float32"}  # of normalisations: on CUDA in the type that sums are kept in
_OUTPUTS: dict[str, dict[int, str]] = {
    "native_dropout": {1: "bool"},
    "_scaled_dot_product_flash_attention": {1: "float32", 2: "int64", 3: "int64", 4: "int64"},
    "_scaled_dot_product_efficient_attention": {1: "float32", 2: "int64", 3: "int64"},
    "_scaled_dot_product_cudnn_attention": {1: "float32", 2: "int64", 3: "int64"},
    "native_layer_norm": _STATISTICS, "native_group_norm": _STATISTICS, "native_batch_norm": _STATISTICS,
    "cudnn_batch_norm": {**_STATISTICS, 3: "uint8"}, "_fused_rms_norm": {1: "float32"},
    "max_pool2d_with_indices": {1: "int64"}, "max_pool3d_with_indices": {1: "int64"}, "topk": {1: "int64"},
    "sort": {1: "int64"}, "max": {1: "int64"}, "min": {1: "int64"},
}  # fmt: skip
# Operators that read indices beside what they index.
_INDEX = ("embedding", "embedding_dense_backward", "nll_loss_forward", "nll_loss_backward", "_embedding_bag")


def base_name(op: str) -> str:
    """ "aten.add_.Tensor" -> "add_"."""
    parts = op.split(".")
    return parts[1] if len(parts) > 1 else op


def element_types(trace: Trace) -> tuple[npt.NDArray[np.int16], tuple[str, ...]]:
    """((T,) index into the names, -1 unknown; the names of types)."""
    names = list(dict.fromkeys([*trace.dtypes, "float32", "int64", "bool", "uint8"]))
    outputs = np.full((len(trace.op_names), 8), -1, np.int16)
    indexes = np.zeros(len(trace.op_names), bool)
    for number, op in enumerate(trace.op_names):
        base = base_name(op)
        for position, name in _OUTPUTS.get(base, {}).items():
            outputs[number, position] = names.index(name)
        indexes[number] = base in _INDEX
    floating = np.array([name in FLOATING for name in names])
    inputs = np.array([name == "input" for name in trace.categories])[trace.category]
    found = _types(
        trace.op, trace.dtype, accesses(trace), outputs, indexes, floating, inputs, names.index("int64"),
    )  # fmt: skip
    return found, tuple(names)


def element_bytes(trace: Trace) -> I64:
    """(T,) bytes of one element; 0 unknown."""
    found, names = element_types(trace)
    return np.array([*(BYTES.get(name, 0) for name in names), 0], np.int64)[found]


@kept()
def _types(
    op: Any, dtype: Any, of: Accesses, outputs: Any, indexes: Any, floating: Any, inputs: Any, integer: int
) -> Any:  # fmt: skip
    found = np.full(inputs.size, -1, np.int16)
    for o in range(op.size):
        own = dtype[o]
        for i in range(of.read_start[o], of.read_start[o + 1]):  # what nothing has written yet is older than the recording
            t = of.read_id[i]
            if found[t] < 0 and own >= 0:
                if inputs[t] and indexes[op[o]]:
                    found[t] = integer
                elif floating[own] or inputs[t]:
                    found[t] = own
        for i in range(of.write_start[o], of.write_start[o + 1]):
            t, position = of.write_id[i], i - of.write_start[o]
            if found[t] < 0:
                special = outputs[op[o], position] if position < outputs.shape[1] else -1
                found[t] = special if special >= 0 else own
    return found
