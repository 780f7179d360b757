"""GPT-2 as in transformers' GPT2LMHeadModel (attention as `layers.Attend` does it)."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from gpusim.programs.zoo.layers import Attend, Cache, heads, next_token_loss, tokens


class Gelu(nn.Module):
    """The tanh approximation, written out: eight operators where F.gelu(approximate="tanh") is one."""

    def forward(self, x: Tensor) -> Tensor:
        return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))))


class Attention(nn.Module):
    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.size = width // heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.drop = nn.Dropout(dropout)
        self.attend = Attend(dropout)

    def forward(self, x: Tensor, cache: Cache | None) -> Tensor:
        query, key, value = (heads(part, self.size) for part in self.qkv(x).split(x.shape[-1], dim=-1))
        if cache is not None:
            key, value = cache.extend(self, key, value)
        y = self.attend(query, key, value, causal=query.shape[-2] > 1)
        return self.drop(self.out(y.transpose(1, 2).reshape(x.shape)))


class Block(nn.Module):
    def __init__(self, width: int, heads: int, dropout: float, gelu: nn.Module) -> None:
        super().__init__()
        self.norm_1 = nn.LayerNorm(width)
        self.attention = Attention(width, heads, dropout)
        self.norm_2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), gelu, nn.Linear(4 * width, width), nn.Dropout(dropout))

    def forward(self, x: Tensor, cache: Cache | None) -> Tensor:
        x = self.attention(self.norm_1(x), cache) + x
        return x + self.mlp(self.norm_2(x))


class Model(nn.Module):
    """`one_gelu`: the activation is one operator, as in MPT (mosaicml/llm-foundry) and in PaddleNLP's GPT."""

    def __init__(
        self, layers: int, width: int, heads: int, positions: int, vocabulary: int = 50257, dropout: float = 0.1,
        one_gelu: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(positions, width)
        self.drop = nn.Dropout(dropout)
        self.blocks = nn.ModuleList(Block(width, heads, dropout, nn.GELU() if one_gelu else Gelu()) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.tokens.weight

    def inputs(self, batch: int, seq: int) -> dict[str, Tensor]:
        return {"ids": tokens(self.tokens.num_embeddings, batch, seq), "labels": tokens(self.tokens.num_embeddings, batch, seq)}

    def hidden(self, ids: Tensor, cache: Cache | None) -> Tensor:
        """What the head reads."""
        embedded = self.tokens(ids)
        where = torch.arange(ids.shape[-1], device=ids.device) + (0 if cache is None else cache.seq)
        x = self.drop(embedded + self.positions(where[None]))
        for block in self.blocks:
            x = block(x, cache)
        if cache is not None:
            cache.seq += ids.shape[-1]
        return self.norm(x)

    def forward(self, ids: Tensor, labels: Tensor | None = None, cache: Cache | None = None) -> Tensor:
        x = self.hidden(ids, cache)
        logits = self.head(x[:, -1:] if cache is not None else x)
        return logits if labels is None else next_token_loss(logits, labels)
