"""Another optimizer."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from typing import Any

import torch

OPTIMIZER = "torch.optim:AdamW"
OPTIONS: dict[str, Any] = {}


def make_optimizer(parameters: Iterable[torch.nn.Parameter], **options: Any) -> torch.optim.Optimizer:
    """With the learning rate and what else the program gives its own."""
    module, _, name = OPTIMIZER.partition(":")
    made = getattr(import_module(module), name)(parameters, **{**OPTIONS, **options})
    assert isinstance(made, torch.optim.Optimizer)
    return made
