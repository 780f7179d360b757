"""Adam with its state in eight bits."""

import bitsandbytes as bnb
import torch
from torch import nn

model = nn.Sequential(nn.Linear(128, 512), nn.GELU(), nn.Linear(512, 128)).cuda()
optimizer = bnb.optim.AdamW8bit(model.parameters(), lr=1e-3, betas=(0.9, 0.995), min_8bit_size=4096)
for _ in range(3):
    model(torch.randn(16, 128, device="cuda")).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
