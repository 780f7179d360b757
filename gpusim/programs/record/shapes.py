"""The shape of a call as the text that a trace carries (gpusim.trace.shapes), from the operator's schema."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any, NamedTuple

import torch

from gpusim.trace.shapes import DECIDES, MOST_LISTED, Item, TensorList, listed, shape_text, value_text

aten = torch.ops.aten

_CONVOLUTIONS = (aten.convolution, aten.convolution_backward, aten.convolution_overrideable, aten.cudnn_convolution)
_SECOND = (aten.copy_, aten._foreach_copy_, aten.where)  # what they pass on is their second argument
_CHANNELS_LAST = {4: torch.channels_last, 5: torch.channels_last_3d}


class Argument(NamedTuple):
    position: int
    name: str
    default: Any


class Signature(NamedTuple):
    """What of a schema stands in the text."""

    tensors: tuple[Argument, ...]
    plain: tuple[Argument, ...]
    convolution: bool
    source: int  # among the tensors the argument that is passed on
    inserts: int  # dimensions that the result has more than the arguments


@cache
def _signature(func: Any) -> Signature:
    tensors, plain = [], []
    for i, argument in enumerate(func._schema.arguments):
        found = Argument(i, argument.name, argument.default_value if argument.has_default_value() else None)
        if "Tensor" in str(argument.type):
            tensors.append(found)
        elif argument.name in DECIDES:
            plain.append(found)
    packet = func._overloadpacket
    return Signature(tuple(tensors), tuple(plain), packet in _CONVOLUTIONS, int(packet in _SECOND), int(packet is aten.stack))


def shape_of(func: Any, args: Any, kwargs: Any, out: Any) -> str:
    """The text of one call that has returned."""
    known = _signature(func)
    with torch._C.DisableTorchFunction():  # a mode of functions would be asked for every dimension
        given = [_value(argument, args, kwargs) for argument in known.tensors]
        made = [] if out is None else list(out) if isinstance(out, tuple) else [out]
        parameters = {}
        for argument in known.plain:
            tensor = _first(given)
            rank = tensor.dim() + known.inserts if tensor is not None else 0
            if text := value_text(argument.name, _value(argument, args, kwargs), rank):
                parameters[argument.name] = text
        if known.convolution:
            parameters["layout"] = "nhwc" if "nhwc" in map(_layout, (*given, *made)) else "nchw"
        elif layout := _layouts([*given, *made]):
            parameters["layout"] = layout
        read, wrote = _first(given[known.source :]), _first(made)
        if read is not None and wrote is not None and read.dtype != wrote.dtype:
            parameters |= {"from": _type(read), "to": _type(wrote)}
        return shape_text(map(_item, given), map(_item, made), parameters)


def shape_of_kernel(read: Iterable[torch.Tensor], wrote: Iterable[torch.Tensor]) -> str:
    """The text of a kernel without a schema, of which its tensors are known."""
    return shape_text(map(_item, read), map(_item, wrote))


def _value(argument: Argument, args: Any, kwargs: Any) -> Any:
    return args[argument.position] if argument.position < len(args) else kwargs.get(argument.name, argument.default)


def _item(value: Any) -> Item:
    if isinstance(value, torch.Tensor):
        return tuple(value.shape)
    if not isinstance(value, (list, tuple)):
        return None
    if len(value) > MOST_LISTED:
        return TensorList(len(value), sum(t.numel() for t in value if t is not None))
    return listed([None if t is None else tuple(t.shape) for t in value])


def _first(values: Iterable[Any]) -> torch.Tensor | None:
    """The first tensor, lists opened."""
    for value in values:
        found = _first(value) if isinstance(value, (list, tuple)) else value
        if isinstance(found, torch.Tensor):
            return found
    return None


def _type(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _layouts(items: list[Any]) -> str:
    """Where not all tensors are contiguous: the word that they share, or that of each item."""
    if all((tensor := _first([item])) is None or tensor.is_contiguous() for item in items):
        return ""
    words = list(map(_layout, items))
    decisive = {word for word, item in zip(words, items, strict=True) if word not in ("-", "contiguous") or _is_wide(item)}
    return decisive.pop() if len(decisive) == 1 else ",".join(words)


def _layout(value: Any) -> str:
    """How a tensor lies in memory, or the first of a list."""
    tensor = _first([value])
    if tensor is None:
        return "-"
    if tensor.is_contiguous():
        return "contiguous"
    extents, strides = tensor.shape, tensor.stride()
    if len(extents) in _CHANNELS_LAST and tensor.is_contiguous(memory_format=_CHANNELS_LAST[len(extents)]):
        return "nhwc"
    order = sorted((i for i, extent in enumerate(extents) if extent != 1), key=lambda i: (-strides[i], i))
    if strides[order[-1]] == 0:
        return "expanded"
    dense, expected = True, 1
    for i in reversed(order):
        dense &= strides[i] == expected
        expected *= extents[i]
    return "x".join(map(str, order)) + ("" if dense else "+gaps")


def _is_wide(value: Any) -> bool:
    """Whether a tensor has an order of dimensions at all."""
    tensor = _first([value])
    return tensor is not None and sum(extent > 1 for extent in tensor.shape) > 1
