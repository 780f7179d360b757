"""The step's batch in parts, whose gradients are added up before the optimizer's step."""

from __future__ import annotations

from collections.abc import Iterator

import torch

PARTS = 1


def parts_of(*batch: torch.Tensor) -> Iterator[tuple[torch.Tensor, ...]]:
    """Each with an equal share of the samples; divide the loss of each, where it is a mean, by PARTS."""
    for tensor in batch:
        if len(tensor) % PARTS:
            raise ValueError(f"{len(tensor)} samples are not {PARTS} equal parts")
    yield from zip(*(tensor.chunk(PARTS) for tensor in batch), strict=True)
