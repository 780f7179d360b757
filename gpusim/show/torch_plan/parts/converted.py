"""All of the model in another format."""

from __future__ import annotations

import torch

PURE_FORMAT = "bfloat16"


def convert(model: torch.nn.Module) -> None:
    """Before the optimizer is made."""
    model.to(getattr(torch, PURE_FORMAT))
