"""What bounds PyTorch's kernels beside flops and bytes: elements that are loaded one by one, and thread blocks that are long.

Facts of the kernels, which hold on every GPU in clocks; the numbers are those of recorded steps on an H100
(gpusim/calibrate/data/h100_sxm/steps), in whose sight they were chosen.
"""

from __future__ import annotations

from math import prod

from gpusim.machine.kernels.numbers import bytes_of
from gpusim.trace.shapes import TYPES, Dims, Item, Shape

_ELEMENTS = 1.5
"""Elements in a clock of a processor, of elementwise kernels that cannot load several at once: where an operand is broadcast or
lies otherwise than the result each element's place is worked out, and where types widen a branch on them converts each."""
_JOINED = 0.9
"""The same where tensors are joined that do not lie alike."""
_CHANNEL, _CHANNEL_BACKWARD = 1.0, 2.8
"""Clocks for 4 bytes of batch normalisation in training, NCHW: one thread block has all of a channel, whose loads have one size
whatever the element type is.  Kernels of ResNet-50 in fp32 on a V100 and an A100 show the same clocks as the H100's."""
_FEW_TOKENS, _FEW_TOKEN = 3072, 65.0
"""Tokens up to which an embedding's gradient is added without a sort, and clocks for each."""
_SORTED, _TOKEN = 110_000.0, 30.0
"""Clocks of the sort, and for each token."""
MASKED = 1.6
"""Pairs of a query and a key in a clock of a processor, where attention reads a mask for each (and drops some of them)."""
_COLUMNS, _ROW = 13_000.0, 3.4
"""Clocks of a sum over rows, which thread blocks finish together, and for each row."""
_GRADIENT_ROW = 11.5
"""Clocks for each row of the gradient of layer normalisation's weights: a thread block has a few columns and all rows."""
NORMALISED = 520.0
"""Clocks of a processor for each row of layer normalisation in 16 bits: a thread block has one row, however short."""
_REDUCED, _REDUCED_PLACE = 115.0, 290.0
"""Clocks for each element of a row that one thread goes over, and where its place is asked (argmax)."""
_WARP, _BLOCK = 32, 512


def elements_a_clock(what: str, name: str, shape: Shape, mixed: bool) -> float:
    """Elements in a clock of a processor at most, of kernels that do not load several at once; 0 of others.

    With their bytes taken off, 1.2 to 1.7 were measured on the H100, and 0.9 of joined ones.
    """
    if what == "join":
        return _JOINED if mixed else 0.0
    if what not in ("cast", "pointwise", "special", "strided"):
        return 0.0
    out = next((dims for dims in map(_tensor, shape.outputs or ()) if dims is not None), None)
    spread = out is not None and any(isinstance(item, tuple) and item and prod(item) != prod(out) for item in shape.inputs)
    old, new = (shape.parameters.get(word, "") for word in TYPES)
    wider = what == "cast" and bytes_of(new or "float32") > bytes_of(old or "float32")
    return _ELEMENTS if what == "strided" or mixed or spread or wider or name == "where" else 0.0


def longest_block(what: str, name: str, dtype: str, shape: Shape) -> float:
    """Clocks that one thread block takes, or kernels that wait for each other; 0 where blocks are many and short."""
    x = _tensor(shape.inputs[0]) if shape.inputs else None
    if not x or "nhwc" in what:
        return 0.0
    if what.startswith("batch_norm") and what != "batch_norm" and len(x) > 1:
        clocks = _CHANNEL if what == "batch_norm train" else _CHANNEL_BACKWARD
        return clocks * bytes_of(dtype) / 4 * prod(x) / max(x[1], 1) * shape.scale
    if what == "layer_norm backward":
        return _GRADIENT_ROW * prod(x) / max(prod(shape.numbers("normalized_shape") or x), 1) * shape.scale
    if what == "scatter" and name.startswith("embedding_dense"):
        tokens = prod((_tensor(shape.inputs[1]) if len(shape.inputs) > 1 else None) or ()) * shape.scale
        return _FEW_TOKEN * tokens if tokens <= _FEW_TOKENS else _SORTED + _TOKEN * tokens
    reduced = [at for at in shape.numbers("dim") if at < len(x)] if what == "reduce" else []
    if not reduced:
        return 0.0
    length = prod(x[at] for at in reduced)
    if len(x) - 1 not in reduced:
        return _COLUMNS + _ROW * length * shape.scale
    return (_REDUCED_PLACE if name.startswith("arg") else _REDUCED) * _of_a_thread(length, prod(x) // max(length, 1))


def _of_a_thread(length: int, rows: int) -> int:
    """Elements that a thread goes over when rows of this length are reduced: a warp has a row where there are many.

    All of a block share one where each thread of a warp would have more than 255, or 16 times the warps.
    """
    wide = min(_power(length), _WARP)
    high = min(_power(rows), _BLOCK // wide)
    wide = min(_power(length), _BLOCK // high)
    each = -(-length // wide)
    return -(-each // high) if each >= min(256, 16 * high) else each


def _power(n: int) -> int:
    """The largest power of two that is no more."""
    return 1 << max(n, 1).bit_length() - 1


def normalised_rows(shape: Shape) -> float:
    """Rows of a layer normalisation."""
    x = _tensor(shape.inputs[0]) or ()
    return prod(x) / max(prod(shape.numbers("normalized_shape") or x[-1:]), 1) * shape.scale


def _tensor(item: Item) -> Dims | None:
    return item if isinstance(item, tuple) else None
