"""Shapes of operators (gpusim.trace.shapes) from what PyTorch's profilers write of their arguments."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

from gpusim.trace.shapes import DECIDES, Dims, Item, listed, rank_of, shape_text, value_text

# A Kineto trace does not name arguments: of operators whose plain arguments decide, what each is.  "*" a tensor, "_" neither.
_CONVOLUTION = "* * * stride padding dilation transposed _ groups"
_ARGUMENTS = {
    "aten::conv2d": "* * * stride padding dilation groups",
    "aten::convolution": _CONVOLUTION,
    "aten::_convolution": _CONVOLUTION,
    "aten::cudnn_convolution": "* * padding stride dilation groups",
    "aten::convolution_backward": "* * * _ stride padding dilation transposed _ groups output_mask",
    "aten::max_pool2d_with_indices": "* kernel_size stride padding dilation ceil_mode",
    "aten::max_pool2d_with_indices_backward": "* * kernel_size stride padding dilation ceil_mode *",
    "aten::avg_pool2d": "* kernel_size stride padding ceil_mode",
    "aten::native_layer_norm": "* normalized_shape * *",
    "aten::native_layer_norm_backward": "* * normalized_shape * * * * output_mask",
    "aten::native_batch_norm": "* * * * * training",
    "aten::cudnn_batch_norm": "* * * * * training",
    "aten::_softmax": "* dim",
    "aten::_log_softmax": "* dim",
    "aten::_softmax_backward_data": "* * dim",
    "aten::_log_softmax_backward_data": "* * dim",
    "aten::cat": "* dim",
    "aten::_scaled_dot_product_flash_attention": "* * * dropout_p is_causal",
    "aten::_scaled_dot_product_efficient_attention": "* * * * _ dropout_p is_causal",
    "aten::_flash_attention_forward": "* * * * * max_q max_k dropout_p is_causal",
    "aten::_flash_attention_backward": "* * * * * * * * max_q max_k dropout_p is_causal",
}

class _Unsaid(Exception):
    """Extents that are not those of a tensor: profilers write some wrong, and nothing else depends on them."""


def _or_none(find: Callable[..., str | None]) -> Callable[..., str | None]:
    @wraps(find)
    def found(*args: Any) -> str | None:
        try:
            return find(*args)
        except _Unsaid:
            return None

    return found


@_or_none
def profiled_shape(name: str, args: dict[str, Any]) -> str | None:
    """Of a Kineto trace's operator with its "Input Dims"; None where it has none.  Outputs are not in such a trace."""
    dims, types, values = (args.get(key, ()) for key in ("Input Dims", "Input type", "Concrete Inputs"))
    roles = _ARGUMENTS.get(name, "").split()
    items: list[Item] = []
    for at, (extents, kind) in enumerate(zip(dims, types, strict=False)):
        if kind == "TensorList" or kind[:1].islower():  # a C++ type; those of plain arguments are Scalar, Int, Bool, ...
            items.append(_item(extents))
        elif at < len(roles) and roles[at] == "*":
            items.append(None)
    if not any(item is not None for item in items):
        return None
    parameters = {}
    rank = rank_of(items)
    for role, value in zip(roles, values, strict=False):
        if role not in "*_" and (text := value_text(role, _literal(value), rank)):
            parameters[role] = text
    return shape_text(items, None, parameters)


@_or_none
def executed_shape(
    names: Sequence[str], values: Sequence[Any], types: Sequence[str], shapes: Any, made: Any, made_types: Any
) -> str | None:
    """Of a node of an execution trace: names, values, types and shapes of its arguments, shapes and types of its results."""
    if shapes is None:
        return None
    tensors = [(at, _item(dims)) for at, (dims, kind) in enumerate(zip(shapes, types, strict=False)) if "Tensor(" in str(kind)]
    if not tensors:
        return None
    rank = rank_of(item for _, item in tensors)
    parameters = {}
    for name, value in zip(names, values, strict=False):
        if name in DECIDES and (text := value_text(name, value, rank)):
            parameters[name] = text
    results = None
    if made is not None and made_types is not None:
        results = [_item(dims) for dims, kind in zip(made, made_types, strict=False) if "Tensor(" in str(kind)]
    return shape_text((item for _, item in tensors), results, parameters)


def _item(extents: Any) -> Item:
    """A tensor's extents, or those of a list of tensors."""
    if extents and isinstance(extents[0], list):
        return listed([_dims(each) for each in extents])
    return _dims(extents)


def _dims(extents: Any) -> Dims:
    if not isinstance(extents, list) or any(type(n) is not int or not 0 <= n < 2**56 for n in extents):
        raise _Unsaid
    return tuple(extents)


def _literal(value: Any) -> Any:
    """A value that is written as text: "[1, 1]", "True", "0.1"."""
    if not isinstance(value, str):
        return value
    try:
        return ast.literal_eval(value)
    except (ValueError, SyntaxError):
        return None
