"""The same model under fused, foreach and single-tensor AdamW, then Adafactor and NAdam."""

import torch
from torch import nn

makers = [
    lambda p: torch.optim.AdamW(p, fused=True),
    lambda p: torch.optim.AdamW(p, foreach=True),
    lambda p: torch.optim.AdamW(p, foreach=False),
    lambda p: torch.optim.Adafactor(p),
    lambda p: torch.optim.NAdam(p, capturable=False),
]
model = nn.Sequential(nn.Linear(48, 96), nn.ReLU(), nn.Linear(96, 48)).to("cuda", torch.bfloat16)
for make in makers:
    optimizer = make(model.parameters())
    model(torch.randn(4, 48, device="cuda", dtype=torch.bfloat16)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
