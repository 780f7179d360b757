"""Llama as in transformers' LlamaForCausalLM: grouped queries, rotary positions, SwiGLU, RMSNorm in fp32."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gpusim.zoo.layers import Cache, heads, next_token_loss, tokens


class RMSNorm(nn.Module):
    def __init__(self, width: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        wide = x.to(torch.float32)
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.eps)
        return self.weight * wide.to(x.dtype)


class Rotary(nn.Module):
    """Cosines and sines of all positions, computed anew in fp32 with every call."""

    inverse: Tensor

    def __init__(self, size: int, theta: float, scale: float = 1.0) -> None:
        super().__init__()
        self.scale = scale
        self.register_buffer("inverse", theta ** (-torch.arange(0, size, 2, dtype=torch.float32) / size), persistent=False)

    @torch.no_grad()
    def forward(self, positions: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        angles = positions[:, None].float() * self.inverse
        angles = torch.cat((angles, angles), dim=-1)
        cos, sin = angles.cos() * self.scale, angles.sin() * self.scale
        return cos.to(dtype), sin.to(dtype)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Each pair (i, i + size/2) of x turned by its angle."""
    half = x.shape[-1] // 2
    return x * cos + torch.cat((-x[..., half:], x[..., :half]), dim=-1) * sin


class Attention(nn.Module):
    def __init__(self, width: int, heads: int, groups: int) -> None:
        super().__init__()
        self.size = width // heads
        self.q = nn.Linear(width, width, bias=False)
        self.k = nn.Linear(width, groups * self.size, bias=False)
        self.v = nn.Linear(width, groups * self.size, bias=False)
        self.out = nn.Linear(width, width, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, cache: Cache | None) -> Tensor:
        query, key, value = (heads(project(x), self.size) for project in (self.q, self.k, self.v))
        query, key = rotate(query, cos, sin), rotate(key, cos, sin)
        if cache is not None:
            key, value = cache.extend(self, key, value)
        y = F.scaled_dot_product_attention(query, key, value, is_causal=query.shape[-2] > 1, enable_gqa=True)
        return self.out(y.transpose(1, 2).reshape(x.shape))


class SwiGLU(nn.Module):
    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.gate = nn.Linear(width, hidden, bias=False)
        self.up = nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Block(nn.Module):
    def __init__(self, width: int, heads: int, groups: int, feed_forward: nn.Module) -> None:
        super().__init__()
        self.attention = Attention(width, heads, groups)
        self.mlp = feed_forward
        self.norm_1 = RMSNorm(width)
        self.norm_2 = RMSNorm(width)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, cache: Cache | None) -> Tensor:
        x = x + self.attention(self.norm_1(x), cos, sin, cache)
        return x + self.mlp(self.norm_2(x))


class Decoder(nn.Module):
    """Embedding, blocks, norm and head; what a block does between tokens comes from outside."""

    def __init__(
        self, layers: int, width: int, heads: int, groups: int, vocabulary: int, theta: float, tied: bool,
        feed_forward: Callable[[], nn.Module],
    ) -> None:  # fmt: skip
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList(Block(width, heads, groups, feed_forward()) for _ in range(layers))
        self.norm = RMSNorm(width)
        self.rotary = Rotary(width // heads, theta)
        self.head = nn.Linear(width, vocabulary, bias=False)
        if tied:
            self.head.weight = self.tokens.weight

    def inputs(self, batch: int, seq: int) -> dict[str, Tensor]:
        return {"ids": tokens(self.tokens.num_embeddings, batch, seq), "labels": tokens(self.tokens.num_embeddings, batch, seq)}

    def hidden(self, ids: Tensor, cache: Cache | None) -> Tensor:
        """What the head reads."""
        embedded = self.tokens(ids)
        where = torch.arange(ids.shape[-1], device=ids.device) + (0 if cache is None else cache.seq)
        cos, sin = self.rotary(where, embedded.dtype)
        x = embedded
        for block in self.blocks:
            x = block(x, cos, sin, cache)
        return self.norm(x)

    def forward(self, ids: Tensor, labels: Tensor | None = None, cache: Cache | None = None) -> Tensor:
        x = self.hidden(ids, cache)
        logits = self.head(x[:, -1:] if cache is not None else x)
        return logits if labels is None else next_token_loss(logits, labels)


class Model(Decoder):
    def __init__(
        self, layers: int, width: int, hidden: int, heads: int, tied: bool, groups: int = 8, vocabulary: int = 128256
    ) -> None:
        super().__init__(layers, width, heads, groups, vocabulary, 500000.0, tied, lambda: SwiGLU(width, hidden))
