"""A transformer in plain PyTorch, as the recordings of Stanford's CS336 course ran it: RMSNorm, rotary positions, SwiGLU, and
attention, loss and AdamW written out.  Nothing is fused, so every tensor that a formula names is an allocation.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn


class Linear(nn.Module):
    def __init__(self, wide: int, out: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(out, wide))

    def forward(self, x: Any) -> Any:
        return torch.einsum("...i,oi->...o", x, self.weight)


class Embedding(nn.Module):
    def __init__(self, count: int, wide: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(count, wide))

    def forward(self, ids: Any) -> Any:
        return self.weight[ids, :]


class Norm(nn.Module):
    def __init__(self, wide: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(wide))

    def forward(self, x: Any) -> Any:
        scale = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5)
        x = x * scale
        return self.weight * x


class Rotary(nn.Module):
    def __init__(self, length: int, wide: int) -> None:
        super().__init__()
        angle = torch.outer(torch.arange(length).float(), 10000.0 ** -(torch.arange(0, wide, 2) / wide))
        self.register_buffer("table", torch.stack((angle.cos(), angle.sin())), persistent=False)

    def forward(self, x: Any) -> Any:
        a, b = x.unflatten(-1, (-1, 2)).movedim(-1, 0)
        cos, sin = self.table[:, : x.size(-2)]
        turned_a = cos * a - sin * b
        turned_b = sin * a + cos * b
        return torch.stack((turned_a, turned_b), -1).flatten(-2)


def softmax(x: Any) -> Any:
    shifted = x - x.max(-1, keepdim=True)[0]
    power = shifted.exp()
    return power / power.sum(-1, keepdim=True)


def attention(query: Any, key: Any, value: Any, mask: Any) -> Any:
    scores = torch.einsum("...qd,...kd->...qk", query, key) / math.sqrt(key.size(-1))
    scores = torch.where(mask, scores, float("-inf"))
    weights = softmax(scores)
    return torch.einsum("...qk,...kd->...qd", weights, value)


class Attention(nn.Module):
    def __init__(self, wide: int, heads: int, rotary: Rotary) -> None:
        super().__init__()
        self.heads, self.rotary = heads, rotary
        self.q_proj, self.k_proj, self.v_proj, self.output_proj = (Linear(wide, wide) for _ in range(4))

    def split(self, x: Any) -> Any:
        return x.unflatten(-1, (self.heads, -1)).transpose(-2, -3)

    def forward(self, x: Any) -> Any:
        query, key, value = self.q_proj(x), self.k_proj(x), self.v_proj(x)
        query, key, value = (self.split(t) for t in (query, key, value))
        query = self.rotary(query)
        key = self.rotary(key)
        position = torch.arange(x.size(-2), device=x.device)
        mask = position[:, None] >= position[None, :]
        out = attention(query, key, value, mask)
        out = out.transpose(-2, -3).flatten(-2).contiguous()
        return self.output_proj(out)


class FeedForward(nn.Module):
    def __init__(self, wide: int, hidden: int) -> None:
        super().__init__()
        self.w1, self.w2, self.w3 = Linear(wide, hidden), Linear(hidden, wide), Linear(wide, hidden)

    def forward(self, x: Any) -> Any:
        return self.w2(silu(self.w1(x)) * self.w3(x))


def silu(x: Any) -> Any:
    return x * torch.sigmoid(x)


class Block(nn.Module):
    def __init__(self, wide: int, heads: int, hidden: int, rotary: Rotary) -> None:
        super().__init__()
        self.attn, self.ffn = Attention(wide, heads, rotary), FeedForward(wide, hidden)
        self.ln1, self.ln2 = Norm(wide), Norm(wide)

    def forward(self, x: Any) -> Any:
        attended = self.attn(self.ln1(x))
        middle = x + attended
        fed = self.ffn(self.ln2(middle))
        return middle + fed


class Transformer(nn.Module):
    def __init__(self, vocabulary: int = 10_000, length: int = 512, wide: int = 1024, layers: int = 24) -> None:
        super().__init__()
        rotary = Rotary(length, wide // 16)
        self.token_embeddings = Embedding(vocabulary, wide)
        self.layers = nn.ModuleList(Block(wide, 16, 4 * wide, rotary) for _ in range(layers))
        self.ln_final = Norm(wide)
        self.lm_head = Linear(wide, vocabulary)

    def forward(self, ids: Any) -> Any:
        x = embedded = self.token_embeddings(ids)
        for layer in self.layers:
            x = layer(x)
        x = self.ln_final(x)
        x = self.lm_head(x)
        del embedded  # held to here, as in the recordings
        return x


def cross_entropy(logits: Any, targets: Any) -> Any:
    def log_softmax(x: Any) -> Any:
        highest = x.max(-1, keepdim=True)[0]
        x = x - highest
        return x - torch.log(torch.exp(x).sum(-1, keepdim=True))

    negative = -log_softmax(logits)
    return torch.gather(negative, -1, targets.unsqueeze(-1)).mean()


class AdamW(torch.optim.Optimizer):
    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, {"lr": 1e-3, "decay": 0.01})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                p.data -= group["lr"] * group["decay"] * p.data
                t = state.get("t", 1)
                m = state.get("m", torch.zeros_like(p.data))
                v = state.get("v", torch.zeros_like(p.data))
                state["m"] = 0.9 * m + 0.1 * p.grad
                state["v"] = 0.95 * v + 0.05 * torch.square(p.grad)
                rate = group["lr"] * math.sqrt(1 - 0.95**t) / (1 - 0.9**t)
                p.data -= rate * state["m"] / (torch.sqrt(state["v"]) + 1e-8)
                state["t"] = t + 1
