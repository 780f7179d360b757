"""Llama's decoder with experts, as in transformers 4's MixtralForCausalLM, Qwen3MoeForCausalLM and Llama4ForCausalLM.

Assumed, since fake tensors have no values to route by: every expert gets the same number of tokens (differing by one at most
where that does not divide), as a well balanced router would give it.  Which tokens is decided as always: the assignments are
sorted by expert and cut at these numbers.  An expert without tokens, in decoding, is not run.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gpusim.programs.zoo.decoder import Attention, Block, Decoder, SwiGLU
from gpusim.programs.zoo.layers import RMSNorm

LLAMA4_TURNS = 4  # of so many layers of Llama 4 all but the last turn queries and keys


class Experts(nn.Module):
    """shared: the hidden width of an expert that every token passes; expert: makes one of the others."""

    def __init__(
        self, width: int, hidden: int, experts: int, chosen: int, shared: int = 0,
        expert: Callable[[int, int], nn.Module] = SwiGLU, bias: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        self.chosen = chosen
        self.router = nn.Linear(width, experts, bias=bias)
        self.experts = nn.ModuleList(expert(width, hidden) for _ in range(experts))
        self.shared = SwiGLU(width, shared) if shared else None

    def forward(self, x: Tensor) -> Tensor:
        rows = x.view(-1, x.shape[-1])
        weights, expert = torch.topk(F.softmax(self.router(rows), dim=-1, dtype=torch.float), self.chosen, dim=-1)
        weights = (weights / weights.sum(dim=-1, keepdim=True)).to(x.dtype)
        mixed = torch.zeros_like(rows)
        assignments = torch.argsort(expert.flatten())
        for run, mine in zip(self.experts, assignments.tensor_split(len(self.experts)), strict=True):
            if mine.numel():
                token = mine // self.chosen
                out = run(rows[token]) * weights.flatten()[mine, None]
                mixed.index_add_(0, token, out.to(x.dtype))
        return mixed.view(x.shape) if self.shared is None else mixed.view(x.shape) + self.shared(x)


class L2Norm(nn.Module):
    """Without a weight."""

    def __init__(self, width: int) -> None:
        super().__init__()

    def forward(self, x: Tensor) -> Tensor:
        wide = x.float()
        return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-5)).type_as(x)


NORMS: dict[str, Callable[[int], nn.Module] | None] = {"": None, "rms": RMSNorm, "l2": L2Norm}


class Model(Decoder):
    """every: one layer in so many has experts, the others a dense part of width `dense`; chunk: Llama 4's local attention."""

    def __init__(
        self, *, layers: int = 32, width: int = 4096, hidden: int = 14336, heads: int = 32, groups: int = 8,
        vocabulary: int = 32000, experts: int = 8, chosen: int = 2, size: int = 0, theta: float = 1e6, norm: str = "",
        shared: int = 0, every: int = 1, dense: int = 0, chunk: int = 0,
    ) -> None:  # fmt: skip
        size = size or width // heads

        def block(layer: int) -> nn.Module:
            local = not chunk or (layer + 1) % LLAMA4_TURNS != 0
            attention = Attention(
                width, heads, groups, size, norm=NORMS[norm] if local else None, turns=local, window=chunk if local else 0
            )
            sparse = (layer + 1) % every == 0
            return Block(width, attention, Experts(width, hidden, experts, chosen, shared) if sparse else SwiGLU(width, dense))

        super().__init__(layers, width, vocabulary, False, size, theta, block)
