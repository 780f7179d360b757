"""Activation checkpointing of blocks; what the operators in KEEP make is kept by a selective policy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

ROOT = ""
BLOCKS: tuple[str, ...] = ()
KEEP: tuple[str, ...] = ()

RECOMPUTED: Counter[str] = Counter()  # operator -> how often it was recomputed, for comparison with SIMULATED


def _policy(context: Any, operator: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
    name = str(operator)
    kept = name in KEEP or name.rpartition(".")[0] in KEEP
    return CheckpointPolicy.MUST_SAVE if kept else CheckpointPolicy.PREFER_RECOMPUTE


class _Counting(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        RECOMPUTED[str(func)] += 1
        return func(*args, **(kwargs or {}))


@contextmanager
def _counted(again: Any) -> Iterator[None]:
    with _Counting(), again:
        yield


def _contexts() -> tuple[Any, Any]:
    """Around a block as it first runs, and as it runs again."""
    first, again = create_selective_checkpoint_contexts(_policy) if KEEP else (nullcontext(), nullcontext())
    return first, _counted(again)


def checkpoint_blocks(model: torch.nn.Module) -> None:
    """Each block runs again in the backward pass, just before what it made is needed."""
    if ROOT and type(model).__name__ != ROOT:
        raise TypeError(f"the plan is for a {ROOT}, not a {type(model).__name__}")
    for name in BLOCKS:
        block = model.get_submodule(name)
        block.forward = partial(checkpoint, block.forward, use_reentrant=False, context_fn=_contexts)
