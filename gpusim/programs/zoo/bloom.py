"""BLOOM as in transformers' BloomForCausalLM: positions are slopes over the keys (ALiBi), the scores are written out."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gpusim.programs.zoo.layers import Cache, additive, next_token_loss, tokens


class TanhGelu(torch.autograd.Function):
    """The tanh approximation, with its gradient written out: only the input is kept."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x * 0.5 * (1.0 + torch.tanh(0.79788456 * x * (1 + 0.044715 * x * x)))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        x = ctx.saved_tensors[0]
        tanh = torch.tanh(0.79788456 * x * (1 + 0.044715 * x * x))
        slope = 0.5 * x * ((1 - tanh * tanh) * (0.79788456 + 0.1070322243 * x * x)) + 0.5 * (1 + tanh)
        return slope * gradients[0]


class Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.size = heads, width // heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor, slopes: Tensor, mask: Tensor | None, cache: Cache | None) -> Tensor:
        fused = self.qkv(x).view(*x.shape[:-1], self.heads, 3, self.size)
        query, key, value = (fused[..., part, :].transpose(1, 2) for part in range(3))
        if cache is not None:
            key, value = cache.extend(self, key, value)
        flat = (len(x) * self.heads, -1, self.size)
        query, key, value = query.reshape(flat), key.reshape(flat).transpose(-1, -2), value.reshape(flat)
        scores = slopes.baddbmm(batch1=query, batch2=key, beta=1.0, alpha=self.size**-0.5)
        scores = scores.view(len(x), self.heads, x.shape[1], -1)
        if mask is not None:
            scores = scores + mask
        weights = F.softmax(scores, dim=-1, dtype=torch.float32).to(query.dtype).view(flat[0], x.shape[1], -1)
        y = torch.bmm(weights, value).view(len(x), self.heads, -1, self.size)
        return self.out(y.transpose(1, 2).reshape(x.shape))


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm_1 = nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.norm_2 = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x: Tensor, slopes: Tensor, mask: Tensor | None, cache: Cache | None) -> Tensor:
        x = x + self.attention(self.norm_1(x), slopes, mask, cache)
        return x + self.down(TanhGelu.apply(self.up(self.norm_2(x))))


class Model(nn.Module):
    """Without dropout, as the published model is configured."""

    def __init__(self, layers: int, width: int, heads: int, vocabulary: int = 250880) -> None:
        super().__init__()
        self.heads = heads
        self.tokens = nn.Embedding(vocabulary, width)
        self.norm_0 = nn.LayerNorm(width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.tokens.weight

    def inputs(self, batch: int, seq: int) -> dict[str, Tensor]:
        return {"ids": tokens(self.tokens.num_embeddings, batch, seq), "labels": tokens(self.tokens.num_embeddings, batch, seq)}

    def forward(self, ids: Tensor, labels: Tensor | None = None, cache: Cache | None = None) -> Tensor:
        x = self.norm_0(self.tokens(ids))
        queries, keys = ids.shape[-1], ids.shape[-1] + (0 if cache is None else cache.seq)
        falls = torch.arange(1, self.heads + 1, device=ids.device) * (-8 / self.heads)
        slopes = torch.exp2(falls)[:, None, None] * torch.arange(keys, device=ids.device)
        slopes = slopes.repeat(len(ids), 1, 1).to(x.dtype)
        mask = None
        if queries > 1:
            seen = torch.ones(queries, keys, dtype=torch.bool, device=ids.device).tril(keys - queries)
            mask = additive(seen, x.dtype)
        for block in self.blocks:
            x = block(x, slopes, mask, cache)
        if cache is not None:
            cache.seq += queries
            x = x[:, -1:]
        logits = self.head(self.norm(x))
        return logits if labels is None else next_token_loss(logits, labels)
