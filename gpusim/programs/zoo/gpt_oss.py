"""GPT-OSS as in transformers' GptOssForCausalLM: attention with sinks, every second layer over a window, experts with biases.

Attention is eager, whatever is asked for: no kernel of scaled_dot_product_attention takes sinks.  Weights have the model's type
(the published ones of experts are in 4 bits).  Routing is balanced, as `moe.py` says.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from gpusim.programs.zoo.decoder import Attention, Block, Decoder
from gpusim.programs.zoo.moe import Experts

LIMIT, ALPHA = 7.0, 1.702


class Clamped(nn.Module):
    """An expert: gate and up part interleaved in one product, both clamped."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.inside = nn.Linear(width, 2 * hidden)
        self.down = nn.Linear(hidden, width)

    def forward(self, x: Tensor) -> Tensor:
        both = self.inside(x)
        gate, up = both[..., ::2].clamp(max=LIMIT), both[..., 1::2].clamp(min=-LIMIT, max=LIMIT)
        return self.down((up + 1) * (gate * torch.sigmoid(gate * ALPHA)))


class Model(Decoder):
    def __init__(
        self, *, layers: int, experts: int, width: int = 2880, hidden: int = 2880, heads: int = 64, groups: int = 8,
        size: int = 64, vocabulary: int = 201088, chosen: int = 4, window: int = 128,
    ) -> None:  # fmt: skip
        def block(layer: int) -> nn.Module:
            attention = Attention(
                width, heads, groups, size, bias=True, sinks=True, window=window if layer % 2 == 0 else 0
            )
            return Block(width, attention, Experts(width, hidden, experts, chosen, expert=Clamped, bias=True))

        super().__init__(layers, width, vocabulary, False, size, 150000.0, block)
