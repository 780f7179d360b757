"""Floating-point operations of an operator: PyTorch's registry, and what it lacks."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils.flop_counter import flop_registry, sdpa_backward_flop_count, sdpa_flop_count

aten = torch.ops.aten


def _attention_on_cpu(query: Any, key: Any, value: Any, *_: Any, **__: Any) -> int:
    return int(sdpa_flop_count(query, key, value))


def _attention_on_cpu_backward(grad: Any, query: Any, key: Any, value: Any, *_: Any, **__: Any) -> int:
    return int(sdpa_backward_flop_count(grad, query, key, value))


_LACKING = {
    aten._scaled_dot_product_flash_attention_for_cpu: _attention_on_cpu,
    aten._scaled_dot_product_flash_attention_for_cpu_backward: _attention_on_cpu_backward,
}


def flops(func: Any, args: Any, kwargs: Any, out: Any) -> int:
    """Of one call; 0 for what is not counted, as PyTorch does (elementwise work)."""
    count: Any = _LACKING.get(func._overloadpacket) or flop_registry.get(func._overloadpacket)
    if not count:
        return 0
    if "scaled_dot_product" in func._overloadpacket.__name__:
        args = _each_with_its_keys(args)
    if func._overloadname.startswith("dtype"):  # a product whose result has a type of its own: the tensors say it all
        args, kwargs = [value for value in args if isinstance(value, torch.Tensor)], {}
    return int(count(*args, **kwargs, out_val=out))


def _each_with_its_keys(args: Any) -> list[Any]:
    """An attention's tensors as shapes, keys and values with as many heads as the queries.

    Where fewer heads of keys serve all queries (grouped-query attention) the work is the same, but PyTorch before 2.12 refuses
    to count it.
    """
    shapes = [value.shape if isinstance(value, torch.Tensor) and value.dim() == 4 else value for value in args]
    heads = max((shape[1] for shape in shapes if isinstance(shape, torch.Size)), default=0)
    return [torch.Size((s[0], heads, *s[2:])) if isinstance(s, torch.Size) else s for s in shapes]
