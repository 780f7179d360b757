"""Gemma 3 as in transformers' Gemma3ForCausalLM (text): norms before and after each part, five local layers to a global one."""

from __future__ import annotations

from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gpusim.programs.zoo.decoder import Attention, Decoder, SwiGLU, Turn
from gpusim.programs.zoo.layers import Cache, RMSNorm, Rotary

EVERY = 6  # one layer in six sees all tokens
Norm = partial(RMSNorm, eps=1e-6, offset=True)


class GeGLU(SwiGLU):
    def forward(self, x: Tensor) -> Tensor:
        return self.down(F.gelu(self.gate(x), approximate="tanh") * self.up(x))


class Block(nn.Module):
    def __init__(self, width: int, attention: nn.Module, feed_forward: nn.Module) -> None:
        super().__init__()
        self.attention, self.mlp = attention, feed_forward
        self.norm_1, self.norm_2, self.norm_3, self.norm_4 = (Norm(width) for _ in range(4))

    def forward(self, x: Tensor, turn: Turn, cache: Cache | None) -> Tensor:
        x = x + self.norm_2(self.attention(self.norm_1(x), turn, cache))
        return x + self.norm_4(self.mlp(self.norm_3(x)))


class Model(Decoder):
    def __init__(
        self, *, layers: int, width: int, hidden: int, heads: int, groups: int, window: int, size: int = 256,
        vocabulary: int = 262208, scaled_by: int = 256,
    ) -> None:  # fmt: skip
        def block(layer: int) -> nn.Module:
            local = (layer + 1) % EVERY != 0
            attention = Attention(
                width, heads, groups, size, norm=Norm, window=window if local else 0, scale=scaled_by**-0.5
            )
            return Block(width, attention, GeGLU(width, hidden))

        super().__init__(layers, width, vocabulary, True, size, 1e6, block)
        self.norm = Norm(width)
        self.near = Rotary(size, 10000.0)
        self.register_buffer("scale", torch.tensor(width**0.5), persistent=False)

    def embed(self, ids: Tensor) -> Tensor:
        x = self.tokens(ids)
        return x * self.scale.to(x.dtype)

    def turns(self, where: Tensor, dtype: torch.dtype) -> list[Turn]:
        far, near = self.rotary(where, dtype), self.near(where, dtype)
        return [near if (layer + 1) % EVERY else far for layer in range(len(self.blocks))]
