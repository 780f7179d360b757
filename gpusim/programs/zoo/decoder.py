"""The decoder that today's language models share: grouped queries, rotary positions, a gated feed-forward part, RMSNorm.

Families differ in what they give it: a block for each layer, made of an attention and a feed-forward part.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gpusim.programs.zoo.layers import Attend, Cache, RMSNorm, Rotary, heads, next_token_loss, rotate, tokens

Turn = tuple[Tensor, Tensor]  # cosines and sines of the positions


class Attention(nn.Module):
    """size: of a head; norm: makes a norm of queries and keys over it; turns: by position; sinks: a score for each head."""

    def __init__(
        self, width: int, heads: int, groups: int, size: int = 0, *, bias: bool = False,
        norm: Callable[[int], nn.Module] | None = None, turns: bool = True, window: int = 0, scale: float | None = None,
        sinks: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        self.size = size or width // heads
        self.q = nn.Linear(width, heads * self.size, bias=bias)
        self.k = nn.Linear(width, groups * self.size, bias=bias)
        self.v = nn.Linear(width, groups * self.size, bias=bias)
        self.out = nn.Linear(heads * self.size, width, bias=bias)
        self.norm_q, self.norm_k = (norm(self.size), norm(self.size)) if norm else (nn.Identity(), nn.Identity())
        self.turns = turns
        self.sinks = nn.Parameter(torch.zeros(heads)) if sinks else None
        self.attend = Attend(scale=scale, window=window, wide=not sinks)

    def forward(self, x: Tensor, turn: Turn, cache: Cache | None) -> Tensor:
        query, key, value = (heads(project(x), self.size) for project in (self.q, self.k, self.v))
        query, key = self.norm_q(query), self.norm_k(key)
        if self.turns:
            query, key = rotate(query, *turn), rotate(key, *turn)
        if cache is not None:
            key, value = cache.extend(self, key, value, self.attend.window)
        y = self.attend(query, key, value, causal=query.shape[-2] > 1, sinks=self.sinks)
        return self.out(y.transpose(1, 2).reshape(*x.shape[:-1], -1))


class SwiGLU(nn.Module):
    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.gate = nn.Linear(width, hidden, bias=False)
        self.up = nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Block(nn.Module):
    """Each part reads the norm of the stream and adds to it."""

    def __init__(self, width: int, attention: nn.Module, feed_forward: nn.Module) -> None:
        super().__init__()
        self.attention = attention
        self.mlp = feed_forward
        self.norm_1 = RMSNorm(width)
        self.norm_2 = RMSNorm(width)

    def forward(self, x: Tensor, turn: Turn, cache: Cache | None) -> Tensor:
        x = x + self.attention(self.norm_1(x), turn, cache)
        return x + self.mlp(self.norm_2(x))


class Decoder(nn.Module):
    """Embedding, blocks, norm and head.

    size   of what is turned by position in each head
    block  makes the block of a layer
    """

    def __init__(
        self, layers: int, width: int, vocabulary: int, tied: bool, size: int, theta: float, block: Callable[[int], nn.Module]
    ) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList(block(layer) for layer in range(layers))
        self.norm: nn.Module = RMSNorm(width)
        self.rotary = Rotary(size, theta)
        self.head = nn.Linear(width, vocabulary, bias=False)
        if tied:
            self.head.weight = self.tokens.weight

    def inputs(self, batch: int, seq: int) -> dict[str, Tensor]:
        return {"ids": tokens(self.tokens.num_embeddings, batch, seq), "labels": tokens(self.tokens.num_embeddings, batch, seq)}

    def embed(self, ids: Tensor) -> Tensor:
        return self.tokens(ids)

    def turns(self, where: Tensor, dtype: torch.dtype) -> list[Turn]:
        """The turn of each layer."""
        return [self.rotary(where, dtype)] * len(self.blocks)

    def hidden(self, ids: Tensor, cache: Cache | None) -> Tensor:
        """What the head reads."""
        x = embedded = self.embed(ids)  # held to the end, as transformers does
        where = torch.arange(ids.shape[-1], device=ids.device) + (0 if cache is None else cache.seq)
        turns = self.turns(where, embedded.dtype)
        for block, turn in zip(self.blocks, turns, strict=True):
            x = block(x, turn, cache)
        if cache is not None:
            cache.seq += ids.shape[-1]
        return self.norm(x)

    def forward(self, ids: Tensor, labels: Tensor | None = None, cache: Cache | None = None) -> Tensor:
        x = self.hidden(ids, cache)
        logits = self.head(x[:, -1:] if cache is not None else x)
        return logits if labels is None else next_token_loss(logits, labels)
