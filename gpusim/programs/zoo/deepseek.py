"""DeepSeek as in transformers' DeepseekV3ForCausalLM: latent attention, and experts of which some are shared.

Queries (where they have a rank), keys and values are projected from a narrow latent; a part of each head is turned by position,
and of keys that part is the same for all heads.  The cache keeps keys and values of all heads, as transformers does, not the
latent.  Routing is balanced, as `moe.py` says.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from gpusim.programs.zoo.decoder import Block, Decoder, SwiGLU, Turn
from gpusim.programs.zoo.layers import Attend, Cache, RMSNorm, heads, rotate
from gpusim.programs.zoo.moe import Experts


class Latent(nn.Module):
    """rank: of the latent of keys and values; of queries `query_rank`, 0 without one; a head: `plain` and `turned` numbers."""

    def __init__(self, width: int, heads: int, rank: int, query_rank: int, plain: int, turned: int, value: int) -> None:
        super().__init__()
        self.rank, self.plain, self.turned, self.value = rank, plain, turned, value
        size = plain + turned
        self.q: nn.Module = nn.Linear(width, heads * size, bias=False)
        if query_rank:
            narrow = nn.Linear(width, query_rank, bias=False)
            self.q = nn.Sequential(narrow, RMSNorm(query_rank), nn.Linear(query_rank, heads * size, bias=False))
        self.narrow = nn.Linear(width, rank + turned, bias=False)
        self.norm = RMSNorm(rank)
        self.kv = nn.Linear(rank, heads * (plain + value), bias=False)
        self.out = nn.Linear(heads * value, width, bias=False)
        self.attend = Attend(scale=size**-0.5, wide=True)

    def forward(self, x: Tensor, turn: Turn, cache: Cache | None) -> Tensor:
        query, query_turned = heads(self.q(x), self.plain + self.turned).split((self.plain, self.turned), dim=-1)
        latent, key_turned = self.narrow(x).split((self.rank, self.turned), dim=-1)
        key, value = heads(self.kv(self.norm(latent)), self.plain + self.value).split((self.plain, self.value), dim=-1)
        key_turned = rotate(key_turned[:, None], *turn).expand(-1, key.shape[1], -1, -1)
        query = torch.cat((query, rotate(query_turned, *turn)), dim=-1)
        key = torch.cat((key, key_turned), dim=-1)
        if cache is not None:
            key, value = cache.extend(self, key, value)
        y = self.attend(query, key, value, causal=query.shape[-2] > 1)
        return self.out(y.transpose(1, 2).reshape(*x.shape[:-1], -1))


class Model(Decoder):
    """dense: how many layers come first without experts; shared: how many experts every token passes."""

    def __init__(
        self, *, layers: int, width: int, hidden: int, expert: int, heads: int, experts: int, chosen: int, shared: int,
        dense: int, query_rank: int, vocabulary: int, rank: int = 512, plain: int = 128, turned: int = 64, value: int = 128,
    ) -> None:  # fmt: skip
        def block(layer: int) -> nn.Module:
            attention = Latent(width, heads, rank, query_rank, plain, turned, value)
            sparse = layer >= dense
            return Block(
                width, attention, Experts(width, expert, experts, chosen, shared * expert) if sparse else SwiGLU(width, hidden)
            )

        super().__init__(layers, width, vocabulary, False, turned, 10000.0, block)
