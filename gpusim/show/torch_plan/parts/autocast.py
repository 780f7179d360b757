"""Another format for forward and loss."""

from __future__ import annotations

import torch

FORMAT = "bfloat16"


def autocast(device: str = "cuda") -> torch.autocast:
    """Around forward and loss."""
    return torch.autocast(device, getattr(torch, FORMAT))
