"""The shape of an operator as a short text, which stands in a trace's name table `shapes`: dimensions, not types.

    16x64x56x56 64x64x3x3 64 -> 16x64x56x56 | stride=1x1 padding=1x1 dilation=1x1 transposed=0 groups=1 layout=nchw

    shape      = inputs "->" outputs [ "|" parameters ]             words apart by one blank
    inputs     = items         the tensor arguments, in the order of the operator's schema
    outputs    = items | "?"   the results; "?" where a recording does not say
    item       = tensor | "[" tensors "]" | "[" count ": " elements "]"     a list of tensors, a long one as its sum
    tensor     = "64x3x7x7" | "scalar" (no dimensions) | "-" (an absent optional tensor)
    parameters = name "=" value, ...   those plain arguments on which the time depends, by their names in the schema

A recording that lacks the outputs lacks strides as well, and says nothing of layouts and types.

Values: whole numbers joined by "x" (stride=2x2, dim=1, is_causal=0), other numbers, words.  Dimensions (`dim`) count from 0; an
argument that is None is left out.  Four names are no arguments:

    layout  of a convolution nchw, or nhwc where a tensor has its channels last; of other operators left out where all tensors
            are contiguous, else the word that they share, or one for each item, inputs before outputs, apart by commas:
            contiguous, nhwc (channels last, of four or five dimensions), expanded (an extent with stride 0), or the
            dimensions of more than one element from the largest stride to the smallest (1x0: transposed), with +gaps behind
            them where it is a part of a tensor
    from    the type of what is read, and
    to      that of what is written, where the first ones differ
    scale   how many times the work of these dimensions the operator does, since the program was changed (half a batch: 0.5)
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from math import prod

from gpusim.base.errors import TraceError

Dims = tuple[int, ...]
MOST_LISTED = 8  # tensors of a list that are written out
TYPES = ("from", "to")  # the parameters that speak of types
SCALE = "scale"

# Names of plain arguments on which an operator's time depends, beside the dimensions of its tensors.
DECIDES = {
    "stride", "padding", "dilation", "transposed", "groups", "output_mask", "kernel_size", "ceil_mode", "is_causal", "causal",
    "dropout_p", "max_q", "max_k", "window_size_left", "window_size_right", "normalized_shape", "group", "dim", "dims",
    "training", "train", "accumulate", "k", "descending", "mode", "hidden_size", "num_layers", "bidirectional", "amsgrad",
}  # fmt: skip
_DIMENSIONS = ("dim", "dims")

_DIMS = re.compile(r"(0|[1-9]\d{0,17})(x(0|[1-9]\d{0,17}))*")
_SUM = re.compile(r"\[(\d{1,18}): (\d{1,18})\]")
_PARAMETER = re.compile(r"([A-Za-z_]\w*)=([^\s=|\[\]]+)")
_ITEM = re.compile(r"\[[^\[\]]*\]|[^\s\[\]]+")


@dataclass(frozen=True)
class TensorList:
    """Several tensors that are one argument or result."""

    count: int
    elements: int  # of all of them
    tensors: tuple[Dims | None, ...] | None = None  # None where only their sum is known


Item = Dims | TensorList | None  # None: an absent optional tensor


@dataclass(frozen=True)
class Shape:
    """What a text says; outputs None where it does not."""

    inputs: tuple[Item, ...]
    outputs: tuple[Item, ...] | None
    parameters: Mapping[str, str] = field(default_factory=dict)

    @property
    def scale(self) -> float:
        """How many times the work of the dimensions is done; ValueError when the parameter holds another word."""
        return float(self.parameters.get(SCALE, 1))

    def numbers(self, name: str) -> tuple[int, ...]:
        """The whole numbers of a parameter, () without it; ValueError when it holds other words."""
        value = self.parameters.get(name)
        return tuple(map(int, value.split("x"))) if value else ()


def listed(tensors: Sequence[Dims | None]) -> TensorList:
    """A list of tensors; of more than MOST_LISTED only the sum."""
    elements = sum(prod(dims) for dims in tensors if dims is not None)
    return TensorList(len(tensors), elements, tuple(tensors) if len(tensors) <= MOST_LISTED else None)


def shape_text(inputs: Iterable[Item], outputs: Iterable[Item] | None, parameters: Mapping[str, str] | None = None) -> str:
    """The text that `parse` reads; a list of tensors that is not written out stands as its sum."""
    words = [*map(item_text, inputs), "->", *(["?"] if outputs is None else map(item_text, outputs))]
    if parameters:
        words += ["|", *(f"{name}={value}" for name, value in parameters.items())]
    return " ".join(words)


def rank_of(items: Iterable[Item]) -> int | None:
    """The number of dimensions of the first tensor, None where that is not known."""
    first = next((item for item in items if item is not None), None)
    if isinstance(first, TensorList):
        return rank_of(first.tensors or ())
    return None if first is None else len(first)


def value_text(name: str, value: object, rank: int | None) -> str:
    """A plain argument of an operator on tensors of this rank; "" for one that is not there or cannot be told."""
    if isinstance(value, (list, tuple)):
        return "x".join(value_text(name, each, rank) for each in value)
    if isinstance(value, int) and value < 0 and name in _DIMENSIONS:
        return "" if rank is None else str(value % max(rank, 1))
    if isinstance(value, int):
        return str(int(value))
    return f"{value:g}" if isinstance(value, float) else ""


def item_text(item: Item) -> str:
    """One argument or result."""
    if item is None:
        return "-"
    if isinstance(item, TensorList):
        if item.tensors is None:
            return f"[{item.count}: {item.elements}]"
        return f"[{' '.join(map(item_text, item.tensors))}]"
    return "x".join(map(str, item)) or "scalar"


@lru_cache(maxsize=1 << 16)
def parse(text: str) -> Shape:
    """What a text says.  Raises TraceError for what is no shape."""
    left, arrow, right = text.partition("->")
    right, bar, rest = right.partition("|")
    if not arrow:
        raise _wrong(text, "lacks its '->' between inputs and outputs")
    outputs = None if right.strip() == "?" else _items(right, text)
    parameters: dict[str, str] = {}
    for word in rest.split():
        found = _PARAMETER.fullmatch(word)
        if not found or found[1] in parameters:
            raise _wrong(text, f"says '{word}', {'which it said before' if found else 'where name=value is due'}")
        parameters[found[1]] = found[2]
    if bar and not parameters:
        raise _wrong(text, "has no parameter behind its '|'")
    return Shape(_items(left, text), outputs, parameters)


def without(text: str, names: Iterable[str]) -> str:
    """The text without these parameters."""
    shape = parse(text)
    return shape_text(shape.inputs, shape.outputs, {n: v for n, v in shape.parameters.items() if n not in set(names)})


def times(text: str, factor: float) -> str:
    """The text of so many times its work."""
    shape = parse(text)
    scale = float(f"{shape.scale * factor:.4g}")
    rest = {name: value for name, value in shape.parameters.items() if name != SCALE}
    return shape_text(shape.inputs, shape.outputs, {**rest, **({SCALE: f"{scale:g}"} if scale != 1 else {})})


def _items(words: str, text: str) -> tuple[Item, ...]:
    found = tuple(_item(word, text) for word in _ITEM.findall(words))
    if words.count("[") != words.count("]") or "".join(_ITEM.findall(words)).replace(" ", "") != words.replace(" ", ""):
        raise _wrong(text, "has a bracket too many or too few")
    return found


def _item(word: str, text: str) -> Item:
    if not word.startswith("["):
        return _tensor(word, text)
    if summed := _SUM.fullmatch(word):
        return TensorList(int(summed[1]), int(summed[2]))
    tensors = tuple(_tensor(each, text) for each in word[1:-1].split())
    return TensorList(len(tensors), sum(prod(dims) for dims in tensors if dims is not None), tensors)


def _tensor(word: str, text: str) -> Dims | None:
    if word == "-":
        return None
    if word == "scalar":
        return ()
    if not _DIMS.fullmatch(word):
        raise _wrong(text, f"says '{word}', which is no tensor")
    return tuple(map(int, word.split("x")))


def _wrong(text: str, fault: str) -> TraceError:
    return TraceError(f"the shape '{text[:80]}' {fault}", hint="like this: 8x512 512x64 -> 8x64 | name=value")
