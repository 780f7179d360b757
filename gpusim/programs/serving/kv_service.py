"""A server of LLM requests: the model whose cache it keeps, its limits, and how long its operators take.

An operator takes the longer of computing (2 flops per parameter and token, 4 per head dimension, head, layer and pair of
tokens that attend) and moving (weights, cache read, cache written, once per iteration), at the rates that the profile's
model of kernel times gives large matrix products and reads.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gpusim.base.errors import GpusimError, TraceError
from gpusim.machine.catalogue import load
from gpusim.machine.kernels.durations import modelled_durations
from gpusim.trace.build import make_trace
from gpusim.trace.trace import ALLOC, FREE, OP

WIDTHS = {"bfloat16": 2, "float16": 2, "float32": 4, "float8": 1}  # bytes
_WEIGHT = 2  # bytes per parameter


@dataclass(frozen=True)
class ModelShape:
    """Of a transformer, as far as its cache and its speed go."""

    layers: int
    heads: int  # of queries
    kv_heads: int
    head_dim: int
    parameters: float

    def token_bytes(self, dtype: str) -> int:
        """Keys and values of one token in all layers."""
        return 2 * self.layers * self.kv_heads * self.head_dim * WIDTHS[dtype]


# From the models' published configurations.
MODELS = {
    "gpt2": ModelShape(12, 12, 12, 64, 124e6),
    "llama-1b": ModelShape(16, 32, 8, 64, 1.236e9),
    "llama-8b": ModelShape(32, 32, 8, 128, 8.03e9),
    "llama-70b": ModelShape(80, 64, 8, 128, 70.55e9),
    "mistral-7b": ModelShape(32, 32, 8, 128, 7.25e9),
    "qwen2.5-7b": ModelShape(28, 28, 4, 128, 7.62e9),
}


@dataclass(frozen=True)
class Setup:
    """The server; `llm_requests` says what each option is."""

    model: str
    shape: ModelShape
    dtype: str
    block: int
    batch: int
    tokens: int
    stride: int
    retain: float
    profile: str
    prefill: float
    decode: float


class Clock:
    """How long operators take, in ns."""

    def __init__(self, setup: Setup) -> None:
        shape = setup.shape
        self.compute, self.memory = _rates(setup.profile)
        self.linear = 2 * shape.parameters
        self.attend = 4 * shape.layers * shape.heads * shape.head_dim
        self.weights = int(shape.parameters * _WEIGHT)
        self.token = shape.token_bytes(setup.dtype)
        self.setup = setup

    def flops(self, new: Any, seen: Any) -> Any:
        """Of `new` tokens that attend to `seen` pairs."""
        return self.linear * new + self.attend * seen

    def prefill(self, new: int, cached: int) -> tuple[int, float]:
        """(ns, flops) of the last `new` tokens of a prompt of which `cached` are in the cache."""
        flops = self.flops(new, new * cached + new * (new + 1) / 2)
        if self.setup.prefill > 0:
            return round(new / self.setup.prefill * 1e9), flops
        moved = self.weights + (new + cached) * self.token
        return round(max(flops / self.compute, moved / self.memory) * 1e9), flops

    def decode(self, made: Any, context: Any) -> tuple[int, float]:
        """(ns, flops) of sequences that make `made` tokens each, after `context` tokens each."""
        iteration = np.arange(made.max())
        active = made[:, None] > iteration  # (sequences, iterations)
        count = active.sum(axis=0)
        seen = np.where(active, context[:, None] + iteration + 1, 0).sum(axis=0)
        flops = self.flops(count, seen)
        if self.setup.decode > 0:
            return round(len(iteration) / self.setup.decode * 1e9), float(flops.sum())
        moved = self.weights + (seen + count) * self.token
        return round(float(np.maximum(flops / self.compute, moved / self.memory).sum()) * 1e9), float(flops.sum())


def clock_of(setup: Setup, path: str) -> Clock:
    """The clock of a setup.  Raises TraceError where its profile gives no times."""
    try:
        return Clock(setup)
    except GpusimError as error:
        raise TraceError(f"the profile '{setup.profile}' gives no times: {error}", path) from None


def _rates(profile: str) -> tuple[float, float]:
    """(flop/s of large 16-bit matrix products, bytes/s of large reads), by the model of kernel times."""
    probe: dict[str, Any] = {"size": [0], "kind": [ALLOC, OP, OP, FREE], "arg": [0, 0, 1, 0], "op": [0, 0], "dtype": [0, 0],
                             "flops": [1e15, 0.0], "read_bytes": [0, 10**12]}  # fmt: skip
    trace = make_trace("probe", probe, {"op_names": ["linear"], "dtypes": ["bfloat16"]})
    compute, memory = modelled_durations(trace, load(profile)).ns
    return 1e15 / compute * 1e9, 1e12 / memory * 1e9
