"""Mixtral as in transformers 4's MixtralForCausalLM: Llama's decoder with a mixture of experts in each block.

Assumed, since fake tensors have no values to route by: every expert gets the same number of tokens (differing by one at most
where that does not divide), as a well balanced router would give it.  Which tokens is decided as always: the assignments are
sorted by expert and cut at these numbers.  An expert without tokens, in decoding, is not run.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gpusim.zoo.llama import Decoder, SwiGLU


class Experts(nn.Module):
    def __init__(self, width: int, hidden: int, experts: int, chosen: int) -> None:
        super().__init__()
        self.chosen = chosen
        self.router = nn.Linear(width, experts, bias=False)
        self.experts = nn.ModuleList(SwiGLU(width, hidden) for _ in range(experts))

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
        return mixed.view(x.shape)


class Model(Decoder):
    def __init__(
        self, layers: int = 32, width: int = 4096, hidden: int = 14336, heads: int = 32, groups: int = 8,
        vocabulary: int = 32000, experts: int = 8, chosen: int = 2,
    ) -> None:  # fmt: skip
        super().__init__(layers, width, heads, groups, vocabulary, 1e6, False, lambda: Experts(width, hidden, experts, chosen))
