"""What the kernels of an operator are: one table from operator names to classes, and from shapes to work.

    kernels("aten.convolution.default", "float16", "16x64x56x56 64x64x3x3 - -> ...", flops, read, written)

gives the kernels that PyTorch launches for it, each with its class and its row of `Work`.  Names come without what stands in
front of and behind them: "aten.add_.Tensor" is "add".  An operator without a shape has the class of its name, and its flops and
bytes alone.

    gemm bmm rnn                 products of matrices; recurrent layers
    conv, conv dgrad, conv wgrad dense, "grouped" and "depthwise" behind it where the groups say so; depthwise of NHWC with an
                                 "unaligned" number of channels has other, slow kernels
    conversion                   between NCHW, which the program has, and NHWC, which tensor cores take (of float32: TF32's);
                                 "pointwise" behind it for windows of 1 x 1
    attention, attention backward    in one kernel
    batch_norm, batch_norm train, batch_norm backward, layer_norm, group_norm, softmax, and the latter three backward
    pointwise                    elementwise, of tensors that lie alike; "strided" where they do not, and copies that transpose
    special                      elementwise with exponentials or error functions
    cast, join, fill, reduce, pool, pool backward, resize, gather, scatter, sort, random, optimizer
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from functools import lru_cache
from math import prod
from typing import NamedTuple

import numpy as np

from gpusim.base.errors import TraceError
from gpusim.machine.kernels.limits import MASKED, NORMALISED, elements_a_clock, longest_block, normalised_rows
from gpusim.machine.kernels.numbers import bytes_of
from gpusim.machine.kernels.shapes import winograd
from gpusim.trace.shapes import Dims, Item, Shape, TensorList, parse

LARGE = 1e9
"""Of a side that tiles do not see."""


class ClassedKernel(NamedTuple):
    """One kernel; the numbers are those of `gpusim.machine.kernels.shapes.Work`."""

    what: str
    dtype: str
    """Of the units that compute"""
    flops: float
    moved: float
    touched: float
    loop: float = 1.0
    rows: float = LARGE
    columns: float = LARGE
    batch: float = 1.0
    before: float = 0.0
    special: float = 0.0
    fast: float = 0.0
    fast_loop: float = 1.0
    transformed: float = 0.0
    issue: float = 0.0
    longest: float = 0.0


_TABLE: tuple[tuple[str, str], ...] = (  # the first that matches the whole name
    (r"_?(scaled_)?(mm|addmm|mv|addmv|linear|matmul|gemm|addmm_activation|dot|vdot|qkv_proj|int_mm|grouped_mm)", "gemm"),
    (r"(mkldnn_rnn_layer|_?cudnn_rnn|_thnn_fused_.*_cell|lstm|gru|rnn_.*|lstm_mps)(_backward)?", "rnn"),
    (r"bmm|baddbmm|einsum", "bmm"),
    (r"(cudnn_|_)?convolution(_overrideable)?|conv[123]d|conv_transpose[123]d|conv|conv_depthwise\dd", "conv"),
    (r"convolution_backward(_overrideable)?", "conv backward"),
    (r".*attention.*backward", "attention backward"),
    (r".*attention.*", "attention"),
    (r"(native_|cudnn_|miopen_)?batch_norm(_legit.*|_with_update.*|_no_training.*)?|_native_batch_norm.*", "batch_norm"),
    (r"(native_|cudnn_)?batch_norm_backward", "batch_norm backward"),
    (r"(native_)?layer_norm|(_?fused_)?rms_norm", "layer_norm"),
    (r"(native_)?layer_norm_backward|_?fused_rms_norm_backward", "layer_norm backward"),
    (r"(native_)?group_norm|instance_norm", "group_norm"),
    (r"(native_)?group_norm_backward", "group_norm backward"),
    (r"_?(log_)?softmax|_safe_softmax", "softmax"),
    (r"_?(log_)?softmax_backward(_data)?", "softmax backward"),
    (r".*(pool\dd|pool)(_with_indices)?_backward", "pool backward"),
    (r".*(pool\dd|pool)(_with_indices)?|im2col|unfold", "pool"),
    (r"_?upsample.*|grid_sampler.*|interpolate|col2im|fold", "resize"),
    (r"(_foreach|_fused)_.*|adamw?|sgd|.*optimizer.*", "optimizer"),
    (r"sort|topk|argsort|unique.*|msort|kthvalue|median", "sort"),
    (r"embedding_dense_backward|.*scatter.*|_?(unsafe_)?index_(put|add|copy|fill)|_index_put_impl|embedding_backward|"
     r"_embedding_bag.*backward|masked_scatter|.*histc|bincount|repeat_interleave", "scatter"),
    (r".*embedding.*|gather|take.*|index_select|_?(unsafe_)?index|masked_select|nonzero|rope|rotary", "gather"),
    (r"random|uniform|normal|bernoulli|rand(n|int|perm)?(_like)?|exponential|multinomial|native_dropout|_fused_dropout|"
     r"dropout", "random"),
    (r"sum|mean|a?max|a?min|arg(max|min)|var|std|(var|std)_mean|.*norm|prod|any|all|cumsum|cumprod|logsumexp|count_nonzero|"
     r"batch_norm_stats|nll_loss.*|.*loss.*|cross_entropy.*|trace|_chunk_cat.*|aminmax|logcumsumexp", "reduce"),
    (r"cat|stack|_cat|split_with_sizes_copy|_?pad|constant_pad_nd|.*_pad\dd(_backward)?|roll|flip|repeat|tile", "join"),
    (r"_?to_copy|to|type_as|float|half|_autocast.*|convert.*|quantize.*|dequantize.*", "cast"),
    (r"zeros?|ones|fill|full|(zeros|ones|full|empty)_like|new_(zeros|ones|full|empty.*)|arange|linspace|scalar_tensor|eye|"
     r"empty.*|.*mask_gen.*|as_strided|tril_indices|triu_indices|lift_fresh(_copy)?|set|_local_scalar_dense", "fill"),
    (r"(slice|select|diagonal|as_strided|unfold)_backward", "fill"),
    (r"gelu|silu|sigmoid|tanh|exp|log|softplus|mish|elu|selu|celu|erf|sin|cos|pow|log_sigmoid.*|logit|expm1|log1p|swiglu|"
     r"glu|.*(gelu|silu|sigmoid|tanh|softplus|mish|elu|glu)_backward", "special"),
    (r"add|sub|rsub|mul|div|neg|abs|sign|where|relu|relu6|hardtanh|hardswish|hardsigmoid|leaky_relu|prelu.*|_prelu.*|threshold|"
     r"clamp.*|addc(mul|div)|lerp|sqrt|rsqrt|reciprocal|floor|ceil|round|trunc|remainder|fmod|square|atan2?|frac|"
     r"(eq|ne|lt|le|gt|ge)|is(nan|inf|finite)|maximum|minimum|f?max|logical_.*|bitwise_.*|masked_fill|tri[ul]|copysign|cross|"
     r"(threshold|hardtanh|hardswish|hardsigmoid|leaky_relu|native_dropout|masked_fill|hardshrink|softshrink|rrelu)"
     r".*backward|alias_copy|nan_to_num|addr|heaviside|floor_divide|_amp_.*|unscale.*|bias_add|residual|norm_scale|view_as_.*|"
     r"complex|polar|_conj.*|real|imag|"
     r"copy|clone|contiguous|(permute|view|transpose|expand|t|slice|select)_copy|memcpy.*", "pointwise"),
)  # fmt: skip
_COMPILED = tuple((re.compile(f"(?:{pattern})_?"), what) for pattern, what in _TABLE)
_COPIES = frozenset(("copy", "clone", "contiguous"))
_HALF = ("float16", "bfloat16")
_TENSOR_CORES = (*_HALF, "float32")  # the last as TF32
_ISSUE = {1: 547.0, 2: 980.0, 4: math.inf}  # flops in a clock, by 2-byte elements at whose multiples an operand's rows begin
_ISSUE_RESULT = {1: 364.0, 2: 980.0, 4: math.inf}  # and the result's
_VECTOR = 8  # channels of NHWC that a thread of the vectorised kernels reads at once


@lru_cache(maxsize=1 << 14)
def class_of(name: str) -> str:
    """The class of an operator's name alone; "other" where none is known."""
    plain = base(name)
    return next((what for pattern, what in _COMPILED if pattern.fullmatch(plain)), "other")


def base(name: str) -> str:
    """The name without namespace and overload: "aten.add_.Tensor" and "aten::add_" are "add_"."""
    words = re.split(r"::|\.", name)
    if len(words) > 1 and words[0] in ("aten", "prims", "torchvision", "quantized_decomposed"):
        return words[1]
    return words[0] if len(words) < 3 else words[1]


def kernels(name: str, dtype: str, text: str, flops: float, read: float, written: float) -> tuple[ClassedKernel, ...]:
    """The kernels of one operator with the shape `text` ("" where it has none)."""
    what = class_of(name)
    moved = float(read + written)
    shape = _parsed(text)
    kind = what.split()[0]
    if shape is not None and shape.outputs is not None:
        try:
            if what in ("conv", "conv backward"):
                made = _conv(dtype, shape, moved) if what == "conv" else _conv_backward(dtype, shape)
                return tuple(_times(kernel, shape.scale) for kernel in made)
            if kind in ("gemm", "bmm") and (found := _product(what, dtype, shape, flops, moved)):
                return (found,)
            if kind == "rnn":
                return (_times(_recurrent(name, dtype, shape, moved / shape.scale), shape.scale),)
            if kind == "attention":
                return (_times(_attention(what, dtype, shape, flops, moved / shape.scale), shape.scale),)
        except (IndexError, ValueError, TypeError, AttributeError):
            pass  # a shape of another kind: flops and bytes remain
    if flops and kind in ("gemm", "bmm", "conv", "attention"):
        return (ClassedKernel("conv" if kind == "conv" else what, dtype, flops, moved, moved, loop=64.0),)
    return tuple(_stream(what, name, dtype, shape, float(read), float(written), flops))


def _times(kernel: ClassedKernel, scale: float) -> ClassedKernel:
    """So many times the work, in matrices of the same sides."""
    if scale == 1:
        return kernel
    work = {name: getattr(kernel, name) * scale for name in ("flops", "moved", "touched", "special", "fast", "transformed")}
    return kernel._replace(**work)


def _parsed(text: str) -> Shape | None:
    try:
        return parse(text) if text else None
    except TraceError:
        return None


def _stream(
    what: str, name: str, dtype: str, shape: Shape | None, read: float, written: float, flops: float
) -> Iterator[ClassedKernel]:
    """Kernels that move bytes: how often they pass over what they read, and whether it lies as it is written."""
    layout = shape.parameters.get("layout", "") if shape else ""
    mixed = "," in layout or "+gaps" in layout
    moved = read + written
    size = 2 if dtype in _HALF else 4
    if what == "batch_norm":
        if shape is not None and shape.parameters.get("training") == "1":
            what, moved = "batch_norm train", 2 * read + written
        if layout == "nhwc":
            what += " nhwc"
    elif what == "batch_norm backward":
        moved = 2 * read + written
        if layout == "nhwc":
            what += " nhwc"
    elif what.startswith(("layer_norm", "group_norm", "softmax")):
        if mixed:  # their input is copied where it is not contiguous
            yield ClassedKernel("strided", dtype, 0.0, 2 * written, 2 * written)
        if what.startswith(("group_norm", "layer_norm backward")):
            moved = 2 * read + written
    elif what in ("cast", "pointwise"):
        copies = what == "pointwise" and base(name).rstrip("_") in _COPIES
        if mixed or (copies and layout not in ("", "nhwc", "contiguous")):
            what = "strided"
    elif base(name).startswith("nll_loss"):
        what, moved = _of_targets(name, shape, written)
    elif what in ("pool", "pool backward") and layout == "nhwc":
        what += " nhwc"
    special = written / size if what == "special" else 0.0
    rate, longest = 0.0, 0.0
    if shape is not None:
        plain = base(name)
        rate, longest = elements_a_clock(what, plain, shape, mixed), longest_block(what, plain, dtype, shape)
    elements = written / bytes_of(dtype) if rate else 0.0
    if what == "layer_norm" and dtype in _HALF and shape is not None:
        elements, rate = normalised_rows(shape), 1 / NORMALISED
    yield ClassedKernel(what, dtype, elements, moved, moved, special=special, issue=rate, longest=longest)
    if flops:
        yield ClassedKernel("gemm", dtype, flops, 0.0, 0.0, loop=64.0)


def _of_targets(name: str, shape: Shape | None, written: float) -> tuple[str, float]:
    """Class and bytes of a loss that looks only at the score of each target, and of its gradient, zero elsewhere."""
    if "backward" in name:
        return "fill", written
    targets = shape.inputs[1] if shape is not None and len(shape.inputs) > 1 else None
    return "reduce", written + 16.0 * prod(targets if isinstance(targets, tuple) else ())


def _product(what: str, dtype: str, shape: Shape, flops: float, moved: float) -> ClassedKernel | None:
    matrices = [item for item in shape.inputs if isinstance(item, tuple) and len(item) >= 2]
    out = _tensor(shape.outputs[0]) if shape.outputs else None
    if len(matrices) < 2 or out is None or len(out) < 2:
        return None
    k = matrices[-2][-1]
    rows, columns, batch = float(out[-2]), float(out[-1]), float(prod(out[:-2]))
    if what == "gemm":
        rows, batch = rows * batch, 1.0
    found = flops or 2.0 * rows * columns * k * batch
    issue = _issue(dtype, shape, matrices[-2], matrices[-1], out)
    return ClassedKernel(what, dtype, found, moved, moved, float(k), rows, columns, batch, issue=issue)


def _issue(dtype: str, shape: Shape, a: Dims, b: Dims, out: Dims) -> float:
    """Flops of a product that a processor computes in a clock at most where rows do not begin at multiples of 8 bytes; else 0.

    The loads that feed tensor cores take 16 bytes at once, or 8, or 4; with an odd number of 2-byte elements in a row no such
    load fits, as with the 50,257 words of GPT-2.  Of 4 bytes 250 to 266 TFLOP/s were measured on an H100 (132 processors at
    1.98 GHz), of 2 bytes 133 to 152 where an operand lies so and 95 where the result does, in six products each
    (gpusim/calibrate/data/h100_sxm/steps); products of rows of 16 bytes reach 700 there.
    """
    if dtype not in _HALF:
        return 0.0
    layouts = shape.parameters.get("layout", "").split(",")
    sides = [layouts[at] if len(layouts) > 1 else layouts[0] for at in (-3, -2, -1)] if len(layouts) != 2 else [""] * 3
    inner = [dims[-2] if layout.startswith("1x0") else dims[-1] for dims, layout in zip((a, b, out), sides, strict=True)]
    if out[-2] == 1 or inner[2] == 1:
        return 0.0  # a product with a vector has no tiles
    operands, result = min(_aligned(inner[0]), _aligned(inner[1])), _aligned(inner[2])
    bound = min(_ISSUE[operands], _ISSUE_RESULT[result])
    return 0.0 if math.isinf(bound) else bound


def _aligned(elements: int) -> int:
    """Elements at whose multiples every row begins: 1, 2 or 4 (and more)."""
    return 4 if elements % 4 == 0 else 2 if elements % 2 == 0 else 1


def _recurrent(name: str, dtype: str, shape: Shape, moved: float) -> ClassedKernel:
    """All steps of one layer: its first input, and two matrices behind it."""
    x, inner, hidden = (_some(shape.inputs[i]) for i in range(3))
    steps = x[0] * x[1]
    flops = 2.0 * steps * (prod(inner) + prod(hidden)) * (2 if "backward" in name else 1)
    return ClassedKernel("rnn", dtype, flops, moved, moved, float(hidden[-1]), float(x[1]), float(hidden[0]), float(x[0]))


def _attention(what: str, dtype: str, shape: Shape, flops: float, moved: float) -> ClassedKernel:
    backward = what == "attention backward"
    query, key = (_some(shape.inputs[i]) for i in ((1, 2) if backward else (0, 1)))
    heads, rows, wide = query[1], query[2], query[3]
    pairs = float(query[0] * heads * rows * key[2])
    if "1" in (shape.parameters.get("is_causal"), shape.parameters.get("causal")):
        pairs /= 2
    counted = (10.0 if backward else 4.0) * pairs * wide
    sides = (float(key[2]), float(rows), float(wide), float(query[0] * heads))
    masked = not backward and any(isinstance(item, tuple) and item[-2:] == (rows, key[2]) for item in shape.inputs[3:])
    issue = 4.0 * wide * MASKED if masked and rows > 1 else 0.0
    return ClassedKernel(what, dtype, counted, moved, moved, *sides, special=pairs, issue=issue)


def _conv(dtype: str, shape: Shape, moved: float) -> Iterator[ClassedKernel]:
    x, w, out = _some(shape.inputs[0]), _some(shape.inputs[1]), _some((shape.outputs or ())[0])
    transposed = shape.parameters.get("transposed") == "1"
    side = x if transposed else out
    yield from _convolution("conv", dtype, shape, x, w, out, side)
    if len(shape.inputs) > 2 and shape.inputs[2] is not None and not _depthwise(shape, x, w):
        bytes_ = 2.0 * bytes_of(dtype) * prod(out)  # the bias is a kernel of its own
        yield ClassedKernel("pointwise", dtype, 0.0, bytes_, bytes_)


def _conv_backward(dtype: str, shape: Shape) -> Iterator[ClassedKernel]:
    grad, x, w = (_some(shape.inputs[i]) for i in range(3))
    mask = shape.numbers("output_mask") or (1, 1, 1)
    transposed = shape.parameters.get("transposed") == "1"
    side = x if transposed else grad
    if mask[0]:
        yield from _convolution("conv dgrad", dtype, shape, x, w, grad, side)
    if mask[1]:
        yield from _convolution("conv wgrad", dtype, shape, x, w, grad, side)
    if mask[2]:
        bytes_ = float(bytes_of(dtype) * prod(grad))
        yield ClassedKernel("reduce", dtype, 0.0, bytes_, bytes_)


def _convolution(what: str, dtype: str, shape: Shape, x: Dims, w: Dims, out: Dims, side: Dims) -> Iterator[ClassedKernel]:
    """One of a convolution's three products; `side`: the tensor whose pixels the window visits."""
    groups = (shape.numbers("groups") or (1,))[0]
    size, nhwc = bytes_of(dtype), shape.parameters.get("layout") == "nhwc"
    window = prod(w[2:])
    inside, outside = x[1] / groups, out[1] / groups
    flops = 2.0 * prod(side) * inside * window if side is out else 2.0 * prod(side) * outside * window
    activations = float(size * (prod(x) + prod(out)))
    moved = activations + size * prod(w)
    pixels = float(out[0] * prod(out[2:]))
    stride = shape.numbers("stride") or (1,)
    if _depthwise(shape, x, w):
        aligned = x[1] % _VECTOR == 0
        name = f"{what} depthwise{' nhwc' if nhwc else ''}{' unaligned' if nhwc and not aligned else ''}"
        yield ClassedKernel(name, "float32", flops, moved, moved, float(window), pixels, 1e9)
        return
    rows, columns, loop = {
        "conv": (pixels, outside, inside * window),
        "conv dgrad": (float(x[0] * prod(x[2:])), inside, outside * window),
        "conv wgrad": (outside, inside * window, pixels),
    }[what]
    fast: tuple[float, ...] = (0.0, 1.0, 0.0)
    if w[2:] == (3, 3) and set(stride) == {1} and groups == 1 and size == 4:
        b, cin, cout, high, wide = (np.array(float(n)) for n in (x[0], x[1], out[1], out[2], out[3]))
        fast = tuple(float(n) for n in winograd(what, b, cin, cout, high, wide, size))
    if groups > 1:
        what += " grouped nhwc" if nhwc else " grouped"
    elif window == 1 and set(stride) == {1}:
        what += " pointwise"
    yield ClassedKernel(what, dtype, flops, moved, moved, float(loop), rows, float(columns), float(groups), 0.0, 0.0, *fast)
    if dtype in _TENSOR_CORES and not nhwc:
        name = "conversion pointwise" if what.endswith("pointwise") else "conversion"
        yield ClassedKernel(name, dtype, 0.0, 2 * activations, 2 * activations)


def _depthwise(shape: Shape, x: Dims, w: Dims) -> bool:
    groups = (shape.numbers("groups") or (1,))[0]
    return groups > 1 and groups == x[1] and w[1] == 1


def _tensor(item: Item) -> Dims | None:
    return item if isinstance(item, tuple) else None


def _some(item: Item) -> Dims:
    if item is None or isinstance(item, TensorList):
        raise ValueError("no tensor")
    return item
