"""What a kernel of given dimensions has to do, by class: flops, bytes, what its caches see, and how long its inner loop is.

Dimensions are columns by name, (N,) each:

    gemm              m n k                                      D (m, n) = A (m, k) B (k, n), B the weights
    bmm               b m n k
    conv              b cin cout h w r s stride padding groups   conv dgrad, conv wgrad: its two gradients
    elementwise ...   rows width                                 by operands; layer_norm, softmax: along the width
    attention         b q kv heads kv_heads dim causal
    decode            b kv heads kv_heads dim                    one query against kv keys
    moe               tokens hidden inner topk experts           a gated MLP of three matrices; experts: those held here
    quantise          m k
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

F64 = npt.NDArray[np.float64]
Dims = dict[str, F64]

OPERANDS = {"add": 3, "sub": 3, "mul": 3, "div": 3, "pow": 3}
"""Tensors that an elementwise operator reads and writes; all others two."""


@dataclass(frozen=True)
class Work:
    """What (N,) kernels do."""

    flops: F64
    moved: F64
    """Bytes that cross the memory's pins at least once."""
    touched: F64
    """Bytes that pass between two uses of the same byte: what a cache must hold to serve the second."""
    loop: F64
    """Steps of the inner loop of one output, which run one after the other unless they are split."""
    rows: F64
    columns: F64
    """Sides of the matrix of outputs, which is cut into tiles."""
    batch: F64
    """Such matrices."""
    before: F64
    """Bytes that a kernel of its own moves first, such as one that quantises the activations."""
    special: F64
    """Exponentials, which other units compute than products."""
    fast: F64
    """Flops of an algorithm with fewer multiplications (Winograd) where one applies, else 0."""
    fast_loop: F64
    """Steps of its inner loop."""
    transformed: F64
    """Bytes that it moves beside `moved`."""
    issue: F64 = field(default_factory=lambda: np.zeros(1))
    """Flops that a processor computes in a clock at most, where operands do not lie as its wide loads want them; else 0.
    Of kernels that move bytes: elements, where each is loaded alone."""
    longest: F64 = field(default_factory=lambda: np.zeros(1))
    """Clocks that one thread block takes, where blocks are few or long; else 0."""

    @staticmethod
    def of(flops: F64, moved: F64, **more: F64) -> Work:
        """Work whose other numbers, where absent, say nothing: long sides, one step, touched once."""
        full = np.ones_like(moved)
        default = {"touched": moved, "loop": full, "rows": 1e9 * full, "columns": 1e9 * full, "batch": full}
        default |= {"before": 0 * full, "special": 0 * full, "fast": 0 * full, "fast_loop": full, "transformed": 0 * full}
        default |= {"issue": 0 * full, "longest": 0 * full}
        return Work(flops, moved, **{**default, **more})


def work(what: str, dims: Dims, size: int, turns: float = 1.0) -> Work:
    """The work of kernels of class `what`, `size` bytes an element; `turns`: sets of weights that are used in turn."""
    kind = what.split()[0]
    return _KINDS[kind](what, {name: np.asarray(values, np.float64) for name, values in dims.items()}, size, turns)


def _gemm(what: str, d: Dims, size: int, turns: float) -> Work:
    m, n, k = d["m"], d["n"], d["k"]
    out = max(size, 2)  # 8-bit products are written in 16 bits
    weights, activations = size * n * k, size * m * k + out * m * n
    return Work.of(
        2 * m * n * k, weights + activations, touched=turns * weights + activations, loop=k, rows=m, columns=n,
        before=3 * m * k if size == 1 else 0 * m,  # the activations arrive in 16 bits and are quantised
    )  # fmt: skip


def _bmm(what: str, d: Dims, size: int, turns: float) -> Work:
    b, m, n, k = d["b"], d["m"], d["n"], d["k"]
    return Work.of(2 * b * m * n * k, size * b * (m * k + k * n + m * n), loop=k, rows=m, columns=n, batch=b)


def _conv(what: str, d: Dims, size: int, turns: float) -> Work:
    high = np.floor((d["h"] + 2 * d["padding"] - d["r"]) / d["stride"]) + 1
    wide = np.floor((d["w"] + 2 * d["padding"] - d["s"]) / d["stride"]) + 1
    pixels, window = d["b"] * high * wide, d["cin"] / d["groups"] * d["r"] * d["s"]
    flops = 2 * pixels * d["cout"] * window
    moved = size * (d["b"] * d["cin"] * d["h"] * d["w"] + pixels * d["cout"] + d["cout"] * window)
    per_group = d["cout"] / d["groups"]
    rows, columns, loop = {
        "conv": (pixels, per_group, window),
        "conv dgrad": (d["b"] * d["h"] * d["w"], d["cin"] / d["groups"], per_group * d["r"] * d["s"]),
        "conv wgrad": (per_group, window, pixels),
    }[what.removesuffix(" pointwise")]
    applies = (d["r"] == 3) & (d["s"] == 3) & (d["stride"] == 1) & (d["groups"] == 1) & (size == 4)
    products, steps, transformed = winograd(what, d["b"], d["cin"], d["cout"], high, wide, size)
    return Work.of(
        flops, moved, loop=loop, rows=rows, columns=columns, batch=d["groups"], fast=np.where(applies, products, 0.0),
        fast_loop=np.where(applies, steps, 1.0), transformed=np.where(applies, transformed, 0.0),
    )  # fmt: skip


def winograd(what: str, b: F64, cin: F64, cout: F64, high: F64, wide: F64, size: float) -> tuple[F64, F64, F64]:
    """Flops, steps of the inner loop and transformed bytes of a 3 x 3 convolution in tiles of 4 x 4 outputs.

    36 products take the place of 144; both sides and the weights are written once as transformed, and read once
    (A. Lavin and S. Gray, Fast algorithms for convolutional neural networks, CVPR 2016; cuDNN's "nonfused" kernels).
    """
    tiles = b * np.ceil(high / 4) * np.ceil(wide / 4)
    steps = {"conv": cin, "conv dgrad": cout, "conv wgrad": tiles}[what.removesuffix(" pointwise")]
    return 72.0 * tiles * cin * cout, steps, 72.0 * size * (tiles * (cin + cout) + cin * cout)


def _stream(what: str, d: Dims, size: int, turns: float) -> Work:
    moved = OPERANDS.get(what.split()[-1], 2) * size * d["rows"] * d["width"]
    return Work.of(np.zeros_like(moved), moved, loop=d["width"], rows=d["rows"])


def _attention(what: str, d: Dims, size: int, turns: float) -> Work:
    seen = np.minimum(d["q"], d["kv"])  # the last query of a causal mask sees all keys
    pairs = d["q"] * d["kv"] - np.where(d["causal"] > 0, seen * (seen - 1) / 2, 0.0)
    moved = size * d["b"] * d["dim"] * (2 * d["q"] * d["heads"] + 2 * d["kv"] * d["kv_heads"])
    special, batch = d["b"] * d["heads"] * pairs, d["b"] * d["heads"]
    flops = 4 * special * d["dim"]
    return Work.of(flops, moved, loop=d["kv"], rows=d["q"], columns=d["dim"], batch=batch, special=special)


def _decode(what: str, d: Dims, size: int, turns: float) -> Work:
    moved = size * d["b"] * d["dim"] * (2 * d["kv"] * d["kv_heads"] + 2 * d["heads"])
    flops = 4 * d["b"] * d["heads"] * d["kv"] * d["dim"]
    rows = np.maximum(d["heads"] / d["kv_heads"], 1)
    return Work.of(flops, moved, loop=d["kv"], rows=rows, columns=d["dim"], batch=d["b"] * d["kv_heads"])


def _moe(what: str, d: Dims, size: int, turns: float) -> Work:
    pairs = d["tokens"] * d["topk"]  # of a token with one of its experts, on this GPU
    used = d["experts"] * -np.expm1(-pairs / d["experts"])  # experts with a token at all
    weights = size * 3 * used * d["hidden"] * d["inner"]
    activations = size * pairs * (2 * d["hidden"] + 3 * d["inner"])
    return Work.of(
        6 * pairs * d["hidden"] * d["inner"],
        weights + activations,
        touched=turns * weights + activations,
        loop=d["hidden"],
        rows=pairs / used,
        columns=d["inner"],
        batch=used,
    )


def _quantise(what: str, d: Dims, size: int, turns: float) -> Work:
    return Work.of(np.zeros_like(d["m"]), (size + 1) * d["m"] * d["k"], loop=d["k"], rows=d["m"])


_KINDS = {
    "gemm": _gemm,
    "bmm": _bmm,
    "conv": _conv,
    "elementwise": _stream,
    "layer_norm": _stream,
    "softmax": _stream,
    "attention": _attention,
    "decode": _decode,
    "moe": _moe,
    "quantise": _quantise,
}
