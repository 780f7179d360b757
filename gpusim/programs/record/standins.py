"""What a value counts as that is asked for and was not computed: 1, unless more is known.

Flags and integers are followed through the operators that make them, with one number for a whole tensor, so that a question
gets the answer of a run in which nothing went wrong: `isfinite` is true, `isnan` is false, a counter at 0 is not above 0.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._pytree import tree_map_only

from gpusim.programs.record.schema import tensors
from gpusim.programs.record.storages import Storages

aten = torch.ops.aten
_FILLS = {aten.full: 1, aten.full_like: 1, aten.new_full: 2, aten.fill: 1, aten.fill_: 1, aten.scalar_tensor: 0}
_CONSTANTS = {aten.zeros: 0, aten.zeros_like: 0, aten.new_zeros: 0, aten.zero_: 0}
_CASTS = {aten._to_copy, aten.clone, aten.lift_fresh}


def stand_in(storages: Storages, tensor: torch.Tensor) -> Any:
    """The number that a tensor's elements count as."""
    found = storages.find(tensor)
    value = 1 if found is None or found.stand_in is None else found.stand_in
    if tensor.dtype is torch.bool:
        return bool(value)
    return float(value) if tensor.is_floating_point() else int(value)


def follow(storages: Storages, func: Any, args: Any, kwargs: Any, outputs: list[torch.Tensor]) -> None:
    """Keep what the flags and integers of an operator's result count as."""
    if len(outputs) != 1 or outputs[0].is_floating_point() or outputs[0].is_complex():
        return
    found = storages.find(outputs[0])
    if found is not None and found.home:
        found.stand_in = _value(storages, func, args, kwargs)


def keep(storages: Storages, tensor: torch.Tensor, real: torch.Tensor) -> None:
    """A value of the host is copied: it is known if it is one."""
    found = storages.find(tensor)
    if found is not None and real.numel() == 1 and not real.is_complex():
        with torch._C.DisableTorchFunction(), torch._C._DisableTorchDispatch():
            found.stand_in = real.detach().reshape(()).item()


def _value(storages: Storages, func: Any, args: Any, kwargs: Any) -> Any:
    packet = func._overloadpacket
    if packet in _CONSTANTS:
        return _CONSTANTS[packet]
    if packet in _FILLS:
        fill = kwargs.get("fill_value", args[_FILLS[packet]] if len(args) > _FILLS[packet] else None)
        return fill if isinstance(fill, (bool, int, float)) else None
    inputs = list(tensors((*args, *kwargs.values())))
    if not inputs:
        return None
    if packet in _CASTS:
        return stand_in(storages, inputs[0])

    def scalar(tensor: torch.Tensor) -> torch.Tensor:
        return torch.tensor(stand_in(storages, tensor), dtype=tensor.dtype)

    with torch._C.DisableTorchFunction(), torch._C._DisableTorchDispatch(), torch.no_grad():
        small, named = tree_map_only(torch.Tensor, scalar, (args, kwargs))
        try:
            out = func(*small, **named)
        except (RuntimeError, IndexError, TypeError):  # an operator that needs more than one number
            return None
    return out.item() if isinstance(out, torch.Tensor) and out.numel() == 1 else None
