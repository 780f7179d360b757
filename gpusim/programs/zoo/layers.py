"""What the models share: attention in its implementations, norms, rotary positions, the loss over shifted labels, the cache."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from gpusim.base.errors import GpusimError

IGNORED = -100
KERNELS = {"flash": SDPBackend.FLASH_ATTENTION, "efficient": SDPBackend.EFFICIENT_ATTENTION, "math": SDPBackend.MATH}


def tokens(vocabulary: int, batch: int, seq: int) -> Tensor:
    """Random token ids."""
    return torch.randint(vocabulary, (batch, seq))


def next_token_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """Cross entropy of each position with the next label, in fp32 whatever the model's type is."""
    logits = logits.float()
    padded = F.pad(labels, (0, 1), value=IGNORED)
    shifted = padded[..., 1:].contiguous()
    return F.cross_entropy(logits.view(-1, logits.shape[-1]), shifted.view(-1), ignore_index=IGNORED)


def heads(x: Tensor, size: int) -> Tensor:
    """(batch, seq, heads * size) -> (batch, heads, seq, size), a view."""
    return x.view(*x.shape[:-1], -1, size).transpose(1, 2)


class Attend(nn.Module):
    """Attention of queries to keys and values, each (batch, heads, seq, size); keys may have fewer heads than queries.

    how     the implementation: sdpa leaves the kernel to PyTorch, flash, efficient and math name it, eager writes the
            scores out as the libraries' own "eager" attention does, eager-1.10 as PyTorch up to 1.10 ran that
    scale   of the scores; 1 / sqrt(size) without one
    window  how many tokens a token sees, itself included; 0: all before it
    wide    eager: the softmax is in fp32 whatever the type is
    """

    how = "sdpa"

    def __init__(self, dropout: float = 0.0, scale: float | None = None, window: int = 0, wide: bool = False) -> None:
        super().__init__()
        self.dropout, self.scale, self.window, self.wide = dropout, scale, window, wide

    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None, causal: bool = False,
        sinks: Tensor | None = None,
    ) -> Tensor:  # fmt: skip
        """mask: True (or 0) where a query sees a key; sinks: a score for each head that takes part in the softmax alone."""
        if causal and self.window and key.shape[-2] > self.window:
            mask, causal = self.band(query, key), False
        if self.how.startswith("eager") or sinks is not None:
            return self.eager(query, key, value, mask, causal, sinks)
        if self.how == "flash" and mask is not None:
            hint = "attention=sdpa, efficient or eager; a window larger than the sequence needs no mask"
            raise GpusimError("flash attention takes no mask, and this model masks its scores", hint=hint)
        grouped = query.shape[-3] != key.shape[-3]
        if grouped and (mask is not None or self.how == "efficient"):  # that kernel has no grouped queries
            key, value, grouped = repeated(key, query), repeated(value, query), False
        dropout = self.dropout if self.training else 0.0
        with sdpa_kernel(KERNELS[self.how]) if self.how in KERNELS else nullcontext():
            return F.scaled_dot_product_attention(
                query, key, value, mask, dropout, causal, scale=self.scale, enable_gqa=grouped
            )

    def eager(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, causal: bool, sinks: Tensor | None
    ) -> Tensor:
        key, value = repeated(key, query), repeated(value, query)
        scores = torch.matmul(query, key.transpose(-2, -1)) * (self.scale or query.shape[-1] ** -0.5)
        if causal:
            mask = torch.ones(query.shape[-2], key.shape[-2], dtype=torch.bool, device=query.device).tril()
        if mask is not None:
            scores = scores + additive(mask, scores.dtype)
        if sinks is not None:
            scores = torch.cat((scores, sinks.view(1, -1, 1, 1).expand(len(scores), -1, scores.shape[-2], 1)), dim=-1)
            scores = scores - scores.amax(dim=-1, keepdim=True)
        wide = torch.float32 if self.wide else None
        old = self.how == "eager-1.10"
        weights = (OldSoftmax.apply(scores, wide) if old else F.softmax(scores, dim=-1, dtype=wide)).to(scores.dtype)
        if sinks is not None:
            weights = weights[..., :-1]
        return torch.matmul(F.dropout(weights, self.dropout, self.training), value)

    def band(self, query: Tensor, key: Tensor) -> Tensor:
        """Which keys lie before each query and within its window."""
        seen = torch.ones(query.shape[-2], key.shape[-2], dtype=torch.bool, device=query.device)
        ahead = key.shape[-2] - query.shape[-2]
        return seen.tril(ahead).triu(ahead - self.window + 1)


class OldSoftmax(torch.autograd.Function):
    """Softmax over the last dimension as PyTorch had it up to 1.10: it keeps its input too for the backward pass."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, dtype: torch.dtype | None) -> Tensor:
        ctx.given = x.dtype
        x = x.to(torch.float32 if torch.is_autocast_enabled("cuda") else dtype)
        y = F.softmax(x, dim=-1)
        ctx.save_for_backward(x, y)
        return y

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        x, y = ctx.saved_tensors
        return torch.ops.aten._softmax_backward_data(gradients[0], y, -1, x.dtype).to(ctx.given), None


def repeated(x: Tensor, query: Tensor) -> Tensor:
    """Each head of keys or values once for every head of queries that reads it; a copy where that is more than one."""
    times = query.shape[-3] // x.shape[-3]
    return x if times == 1 else x[:, :, None].expand(-1, -1, times, -1, -1).reshape(len(x), -1, *x.shape[-2:])


def additive(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """What is added to scores: 0 where they count and the least of the type where they do not."""
    if mask.is_floating_point():
        return mask
    return torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill_(~mask, torch.finfo(dtype).min)


class RMSNorm(nn.Module):
    """In fp32, as transformers writes it; offset: the weight is how far the factor is from 1, and it too is in fp32."""

    def __init__(self, width: int, eps: float = 1e-5, offset: bool = False) -> None:
        super().__init__()
        self.eps, self.offset = eps, offset
        self.weight = nn.Parameter(torch.zeros(width) if offset else torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        wide = x.to(torch.float32)
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.eps)
        return (wide * (1.0 + self.weight.float())).to(x.dtype) if self.offset else self.weight * wide.to(x.dtype)


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


class Cache:
    """Keys and values of all layers, concatenated anew with every call: the DynamicCache of transformers."""

    def __init__(self) -> None:
        self.layers: dict[nn.Module, tuple[Tensor, Tensor]] = {}
        self.seq = 0  # tokens so far

    def extend(self, layer: nn.Module, key: Tensor, value: Tensor, window: int = 0) -> tuple[Tensor, Tensor]:
        """Append the new keys and values (batch, heads, seq, size) of one layer; answers all that its queries may see.

        With a window no more than that is kept for the next call.
        """
        if layer not in self.layers:
            self.layers[layer] = self._empty(key), self._empty(value)
        old_key, old_value = self.layers[layer]
        all_of_it = torch.cat([old_key, key], dim=-2), torch.cat([old_value, value], dim=-2)
        self.layers[layer] = (all_of_it[0][..., 1 - window :, :], all_of_it[1][..., 1 - window :, :]) if window else all_of_it
        return all_of_it

    def _empty(self, like: Tensor) -> Tensor:
        return torch.tensor([], dtype=like.dtype, device=like.device)
