"""Attention with a padding mask: the memory-efficient kernel, in float32."""

import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

layer = nn.MultiheadAttention(128, 8, batch_first=True).cuda()
optimizer = torch.optim.Adam(layer.parameters())
lengths = torch.tensor([12, 30, 7, 32])
padding = (torch.arange(32)[None, :] >= lengths[:, None]).cuda()
for _ in range(3):
    x = torch.randn(4, 32, 128, device="cuda")
    with sdpa_kernel([SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]):
        y, _ = layer(x, x, x, key_padding_mask=padding, need_weights=False)
    (y * (~padding).unsqueeze(-1)).pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
