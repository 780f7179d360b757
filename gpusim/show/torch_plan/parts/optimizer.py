"""Another optimizer of torch.optim."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

OPTIMIZER = "AdamW"
OPTIONS: dict[str, Any] = {}


def make_optimizer(parameters: Iterable[torch.nn.Parameter], **options: Any) -> torch.optim.Optimizer:
    """With the learning rate and what else the program gives its own."""
    return getattr(torch.optim, OPTIMIZER)(parameters, **{**OPTIONS, **options})
