"""What PyTorch runs on CUDA where it runs something else on the CPU, or nothing: attention, dropout, histograms of integers.

Which attention kernel is chosen: aten/src/ATen/native/transformers/cuda/sdp_utils.cpp (PyTorch 2.13).
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend

from gpusim.programs.record.storages import GPU

aten = torch.ops.aten
_HALF = (torch.float16, torch.bfloat16)


def _attention(homes: Any, func: Any, args: Any, kwargs: Any) -> Any:
    return _attend(homes, func, *args, **kwargs)


def _attend(
    homes: Any, func: Any, query: Any, key: Any, value: Any,
    attn_mask: Any = None, dropout_p: float = 0.0, is_causal: bool = False,
    scale: float | None = None, enable_gqa: bool = False,
) -> Any:  # fmt: skip
    """Scaled dot-product attention by the kernel that CUDA would take."""
    more = {"attn_mask": attn_mask, "dropout_p": dropout_p, "is_causal": is_causal, "scale": scale, "enable_gqa": enable_gqa}
    if homes.of(query) != GPU:
        return func(query, key, value, **more)
    if torch.is_autocast_enabled("cpu") and query.dtype != torch.float64:
        dtype = torch.get_autocast_dtype("cpu")
        query, key, value = (t.to(dtype) for t in (query, key, value))
        if attn_mask is not None and attn_mask.is_floating_point():
            attn_mask = attn_mask.to(dtype)
    kernel = _kernel(query, key, value, attn_mask)
    if kernel == SDPBackend.FLASH_ATTENTION:  # it takes fewer heads of keys and values as they are (enable_gqa)
        pad = -query.size(-1) % 8
        q, k, v = (F.pad(t, (0, pad)) if pad else t for t in (query, key, value))
        scale = scale if scale is not None or not pad else query.size(-1) ** -0.5
        out = aten._scaled_dot_product_flash_attention(q, k, v, dropout_p, is_causal, False, scale=scale)[0]
        return out[..., : value.size(-1)] if pad else out
    if kernel == SDPBackend.EFFICIENT_ATTENTION:
        bias = _bias(attn_mask, query, key)
        needs = torch.is_grad_enabled() and any(t.requires_grad for t in (query, key, value))
        return aten._scaled_dot_product_efficient_attention(
            query, key, value, bias, needs, dropout_p, is_causal, scale=scale
        )[0]
    return aten._scaled_dot_product_attention_math(
        query, key, value, attn_mask, dropout_p, is_causal, None, scale=scale, enable_gqa=enable_gqa
    )[0]


def _kernel(query: Any, key: Any, value: Any, mask: Any) -> SDPBackend:
    """The first kernel that takes these tensors: flash, memory-efficient, or plain operators."""
    four = all(t.dim() == 4 for t in (query, key, value))
    widest = max(query.size(-1), value.size(-1))
    if not four or query.dtype == torch.float64:
        return SDPBackend.MATH
    enabled = torch.backends.cuda
    same_width = query.size(-1) == key.size(-1) == value.size(-1)
    if enabled.flash_sdp_enabled() and query.dtype in _HALF and mask is None and widest <= 256 and same_width:
        return SDPBackend.FLASH_ATTENTION
    aligned = all(t.size(-1) % (16 // t.element_size()) == 0 for t in (query, value))
    same_heads = query.size(-3) == key.size(-3)
    if enabled.mem_efficient_sdp_enabled() and aligned and same_heads and not (mask is not None and mask.requires_grad):
        return SDPBackend.EFFICIENT_ATTENTION
    return SDPBackend.MATH


def _bias(mask: Any, query: Any, key: Any) -> Any:
    """The mask as a bias of the query's type, its rows aligned to 16 bytes as the kernel wants them."""
    if mask is None:
        return None
    if mask.dtype == torch.bool:
        mask = torch.zeros_like(mask, dtype=query.dtype).masked_fill_(mask.logical_not(), float("-inf"))
    length = mask.size(-1)
    aligned = 16 // mask.element_size()
    if length % aligned:
        mask = F.pad(mask, (0, aligned - length % aligned))[..., :length]
    return mask.expand(query.size(0), query.size(1), query.size(2), key.size(2))


def _dropout(homes: Any, func: Any, args: Any, kwargs: Any) -> Any:
    """Dropout in one kernel that keeps its mask."""
    tensor, p, train = (*args, *kwargs.values())[:3]
    if homes.of(tensor) == GPU and train and 0 < p < 1 and tensor.numel():
        return torch.native_dropout(tensor, p, True)[0]
    return func(*args, **kwargs)


def _histc(tensor: Any, bins: int = 100, *_: Any) -> Any:
    """CUDA counts integers too."""
    return tensor.new_empty(bins)


OPERATORS: dict[Any, Any] = {aten.histc.default: _histc}
HANDLERS = {F.scaled_dot_product_attention: _attention, torch.dropout: _dropout}
