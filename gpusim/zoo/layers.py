"""What language models share: the loss over shifted labels, the key/value cache, random tokens."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

IGNORED = -100


def tokens(vocabulary: int, batch: int, seq: int) -> Tensor:
    """Random token ids."""
    return torch.randint(vocabulary, (batch, seq))


def next_token_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """Cross entropy of each position with the next label, in fp32 whatever the model's type is."""
    logits = logits.float()
    padded = F.pad(labels, (0, 1), value=IGNORED)
    shifted = padded[..., 1:].contiguous()
    return F.cross_entropy(logits.view(-1, logits.shape[-1]), shifted.view(-1), ignore_index=IGNORED)


def heads(x: Tensor, size: int) -> Tensor:
    """(batch, seq, heads * size) -> (batch, heads, seq, size), a view."""
    return x.view(*x.shape[:-1], -1, size).transpose(1, 2)


class Cache:
    """Keys and values of all layers, concatenated anew with every call: the DynamicCache of transformers."""

    def __init__(self) -> None:
        self.layers: dict[nn.Module, tuple[Tensor, Tensor]] = {}

    @property
    def seq(self) -> int:
        """Tokens so far."""
        return next(iter(self.layers.values()))[0].shape[-2] if self.layers else 0

    def extend(self, layer: nn.Module, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Append the new keys and values (batch, heads, seq, size) of one layer; answers all of its own."""
        if layer not in self.layers:
            self.layers[layer] = self._empty(key), self._empty(value)
        old_key, old_value = self.layers[layer]
        self.layers[layer] = torch.cat([old_key, key], dim=-2), torch.cat([old_value, value], dim=-2)
        return self.layers[layer]

    def _empty(self, like: Tensor) -> Tensor:
        return torch.tensor([], dtype=like.dtype, device=like.device)
