"""What an operator's schema says: which arguments it writes, and whether it runs anything."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch

aten = torch.ops.aten

_ONLY_MEMORY = {  # these return memory and run no kernel
    aten.empty, aten.empty_like, aten.empty_strided, aten.empty_permuted, aten.new_empty, aten.new_empty_strided,
    aten.resize_, aten.set_, aten.detach, aten.lift_fresh, aten.alias,
}  # fmt: skip
_OVERWRITES = {aten.copy_, aten.zero_, aten.fill_, aten.normal_, aten.uniform_, aten.random_, aten.bernoulli_,
               aten._foreach_zero_, aten._foreach_copy_, aten.exponential_}  # fmt: skip
# Reads as many bytes of its first argument as it writes: rows or elements of a table.
_GATHERS = {aten.embedding, aten.index, aten.index_select, aten.gather, aten.take}


@dataclass(frozen=True, slots=True)
class Effects:
    """Of one operator."""

    positions: tuple[int, ...]  # of arguments that are written
    names: tuple[str, ...]  # of keyword arguments that are written
    overwrites: bool  # what it writes it does not read
    memory_only: bool
    gathers: bool


@cache
def effects(func: Any) -> Effects:
    arguments = enumerate(func._schema.arguments)
    written = [(i, argument) for i, argument in arguments if argument.alias_info and argument.alias_info.is_write]
    packet = func._overloadpacket
    return Effects(
        tuple(i for i, argument in written if not argument.kwarg_only),
        tuple(argument.name for _, argument in written),
        packet in _OVERWRITES or bool(written and all(argument.kwarg_only for _, argument in written)),
        packet in _ONLY_MEMORY,
        packet in _GATHERS,
    )


@cache
def is_composite(func: Any) -> bool:
    """Whether an operator is made of others."""
    return bool(torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "CompositeImplicitAutograd"))


def tensors(values: Any) -> Iterator[torch.Tensor]:
    """All tensors among arguments or results, lists opened."""
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from tensors(value)


def written(func: Any, args: Any, kwargs: Any) -> Iterator[torch.Tensor]:
    """The arguments that a call writes."""
    known = effects(func)
    yield from tensors(args[i] for i in known.positions if i < len(args))
    yield from tensors(kwargs[name] for name in known.names if name in kwargs)


def is_wrapper(kind: Any) -> bool:
    """Whether a class of tensors is made of others, such as those that are sharded: only its parts are looked at."""
    return issubclass(kind, torch.Tensor) and hasattr(kind, "__tensor_flatten__")


def plain(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor under the wrappers of torch.func's transforms."""
    while torch._C._functorch.is_functorch_wrapped_tensor(tensor):
        tensor = torch._C._functorch.get_unwrapped(tensor)
    return tensor


def view_bytes(tensor: torch.Tensor) -> int:
    """Bytes that a view covers, each counted once where it repeats them."""
    return min(tensor.numel() * tensor.element_size(), tensor.untyped_storage().nbytes())


def is_dense(tensor: torch.Tensor) -> bool:
    """Whether a view has neither gaps nor overlaps."""
    expected = 1
    for stride, extent in sorted((st, n) for st, n in zip(tensor.stride(), tensor.shape, strict=True) if n != 1):
        if stride != expected:
            return False
        expected *= extent
    return True
