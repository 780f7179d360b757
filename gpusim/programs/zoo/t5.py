"""T5 as in transformers' T5ForConditionalGeneration: relative positions as a bias of the scores, which every layer shares.

The bias needs a gradient, so no fused kernel of scaled_dot_product_attention takes it: attention is eager by default.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gpusim.programs.zoo.layers import Attend, heads, tokens

BUCKETS, FARTHEST = 32, 128


class Norm(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        y = x * torch.rsqrt(x.to(torch.float32).pow(2).mean(-1, keepdim=True) + 1e-6)
        return self.weight * (y if self.weight.dtype == torch.float32 else y.to(self.weight.dtype))


class Attention(nn.Module):
    def __init__(self, width: int, heads: int, size: int, dropout: float) -> None:
        super().__init__()
        self.size = size
        self.norm = Norm(width)
        self.q, self.k, self.v = (nn.Linear(width, heads * size, bias=False) for _ in range(3))
        self.out = nn.Linear(heads * size, width, bias=False)
        self.attend, self.drop = Attend(dropout, scale=1.0), nn.Dropout(dropout)

    def forward(self, x: Tensor, bias: Tensor | None, other: Tensor | None = None) -> Tensor:
        """x and the attention of it to itself, or to `other`."""
        y = self.norm(x)
        seen = y if other is None else other
        query, key, value = heads(self.q(y), self.size), heads(self.k(seen), self.size), heads(self.v(seen), self.size)
        y = self.attend(query, key, value, bias)
        return x + self.drop(self.out(y.transpose(1, 2).reshape(*x.shape[:-1], -1)))


class FeedForward(nn.Module):
    def __init__(self, width: int, hidden: int, dropout: float) -> None:
        super().__init__()
        self.norm = Norm(width)
        self.inside, self.out = nn.Linear(width, hidden, bias=False), nn.Linear(hidden, width, bias=False)
        self.drop = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.drop(self.out(self.drop(F.relu(self.inside(self.norm(x))))))


class Block(nn.Module):
    def __init__(self, width: int, hidden: int, heads: int, size: int, dropout: float, decodes: bool) -> None:
        super().__init__()
        self.to_self = Attention(width, heads, size, dropout)
        self.to_other = Attention(width, heads, size, dropout) if decodes else None
        self.mlp = FeedForward(width, hidden, dropout)

    def forward(self, x: Tensor, bias: Tensor, other: Tensor | None = None) -> Tensor:
        x = self.to_self(x, bias)
        if self.to_other is not None:
            x = self.to_other(x, None, other)
        return self.mlp(x)


class Stack(nn.Module):
    """The encoder, or the decoder."""

    def __init__(self, layers: int, width: int, hidden: int, heads: int, size: int, dropout: float, decodes: bool) -> None:
        super().__init__()
        self.decodes = decodes
        self.bias = nn.Embedding(BUCKETS, heads)
        self.blocks = nn.ModuleList(Block(width, hidden, heads, size, dropout, decodes) for _ in range(layers))
        self.norm, self.drop = Norm(width), nn.Dropout(dropout)

    def positions(self, seq: int, x: Tensor) -> Tensor:
        """(1, heads, seq, seq): a bias for each distance, coarser the farther it is; of a decoder the mask too."""
        where = torch.arange(seq, device=x.device)
        far = where[None, :] - where[:, None]
        buckets = BUCKETS if self.decodes else BUCKETS // 2
        side = torch.zeros_like(far) if self.decodes else (far > 0).long() * buckets
        far = (-far).clamp(min=0) if self.decodes else far.abs()
        near = buckets // 2
        coarse = near + (torch.log(far.float() / near) / math.log(FARTHEST / near) * (buckets - near)).long()
        bucket = side + torch.where(far < near, far, coarse.clamp(max=buckets - 1))
        bias = self.bias(bucket).permute(2, 0, 1)[None]
        if not self.decodes:
            return bias
        hidden = torch.full((seq, seq), torch.finfo(bias.dtype).min, dtype=bias.dtype, device=x.device).triu(1)
        return bias + hidden

    def forward(self, x: Tensor, other: Tensor | None = None) -> Tensor:
        x = self.drop(x)
        bias = self.positions(x.shape[1], x)
        for block in self.blocks:
            x = block(x, bias, other)
        return self.drop(self.norm(x))


class Model(nn.Module):
    def __init__(
        self, layers: int, width: int, hidden: int, heads: int, size: int = 64, vocabulary: int = 32128, dropout: float = 0.1
    ) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.encoder = Stack(layers, width, hidden, heads, size, dropout, decodes=False)
        self.decoder = Stack(layers, width, hidden, heads, size, dropout, decodes=True)
        self.blocks = nn.ModuleList([*self.encoder.blocks, *self.decoder.blocks])
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.tokens.weight

    def inputs(self, batch: int, seq: int) -> dict[str, Tensor]:
        """As many tokens to read as to write."""
        read, written, labels = (tokens(self.tokens.num_embeddings, batch, seq) for _ in range(3))
        return {"ids": read, "written": written, "labels": labels}

    def forward(self, ids: Tensor, written: Tensor, labels: Tensor | None = None) -> Tensor:
        x = self.decoder(self.tokens(written), self.encoder(self.tokens(ids)))
        logits = self.head(x * self.tokens.embedding_dim**-0.5)
        return logits if labels is None else F.cross_entropy(logits.view(-1, logits.shape[-1]), labels.view(-1))
