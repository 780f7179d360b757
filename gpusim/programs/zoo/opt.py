"""OPT as in transformers' OPTForCausalLM: learned positions that begin at 2, ReLU, norms before each part, all with biases."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gpusim.programs.zoo.layers import Attend, Cache, heads, next_token_loss, tokens

OFFSET = 2
"""Rows of the table of positions before that of the first token."""


class Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.size = width // heads
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
        self.attend = Attend(scale=1.0)

    def forward(self, x: Tensor, cache: Cache | None) -> Tensor:
        query = heads(self.query(x) * self.size**-0.5, self.size)
        key, value = heads(self.key(x), self.size), heads(self.value(x), self.size)
        if cache is not None:
            key, value = cache.extend(self, key, value)
        y = self.attend(query, key, value, causal=query.shape[-2] > 1)
        return self.out(y.transpose(1, 2).reshape(x.shape))


class Block(nn.Module):
    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.drop = nn.Dropout(dropout)

    def forward(self, x: Tensor, cache: Cache | None) -> Tensor:
        x = x + self.drop(self.attention(self.norm_1(x), cache))
        return x + self.drop(self.down(F.relu(self.up(self.norm_2(x)))))


class Model(nn.Module):
    """Tied: the head is the embedding."""

    def __init__(
        self, layers: int, width: int, heads: int, positions: int = 2048, vocabulary: int = 50272, dropout: float = 0.1
    ) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(positions + OFFSET, width)
        self.blocks = nn.ModuleList(Block(width, heads, dropout) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.tokens.weight

    def inputs(self, batch: int, seq: int) -> dict[str, Tensor]:
        return {"ids": tokens(self.tokens.num_embeddings, batch, seq), "labels": tokens(self.tokens.num_embeddings, batch, seq)}

    def forward(self, ids: Tensor, labels: Tensor | None = None, cache: Cache | None = None) -> Tensor:
        where = torch.arange(ids.shape[-1], device=ids.device) + OFFSET + (0 if cache is None else cache.seq)
        x = self.tokens(ids) + self.positions(where[None])
        for block in self.blocks:
            x = block(x, cache)
        if cache is not None:
            cache.seq += ids.shape[-1]
            x = x[:, -1:]
        logits = self.head(self.norm(x))
        return logits if labels is None else next_token_loss(logits, labels)
