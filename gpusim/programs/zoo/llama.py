"""Dense decoders as in transformers' LlamaForCausalLM, MistralForCausalLM and Qwen3ForCausalLM (norms of queries and keys)."""

from __future__ import annotations

from torch import nn

from gpusim.programs.zoo.decoder import Attention, Block, Decoder, SwiGLU
from gpusim.programs.zoo.layers import RMSNorm


class Model(Decoder):
    def __init__(
        self, *, layers: int, width: int, hidden: int, heads: int, tied: bool = False, groups: int = 8,
        vocabulary: int = 128256, size: int = 0, theta: float = 5e5, normed: bool = False,
    ) -> None:  # fmt: skip
        size = size or width // heads

        def block(layer: int) -> nn.Module:
            attention = Attention(width, heads, groups, size, norm=RMSNorm if normed else None)
            return Block(width, attention, SwiGLU(width, hidden))

        super().__init__(layers, width, vocabulary, tied, size, theta, block)
