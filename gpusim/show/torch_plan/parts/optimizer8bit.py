"""Adam with its state in 8 bits."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import bitsandbytes
import torch


def make_optimizer(parameters: Iterable[torch.nn.Parameter], **options: Any) -> torch.optim.Optimizer:
    """With the learning rate and what else the program gives its own."""
    return bitsandbytes.optim.Adam8bit(parameters, **options)
