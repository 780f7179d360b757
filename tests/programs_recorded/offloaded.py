"""Activations wait for the backward pass in pinned memory of the host."""

import torch
from torch import nn

model = nn.Sequential(*(nn.Sequential(nn.Linear(128, 128), nn.ReLU()) for _ in range(4))).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    with torch.autograd.graph.save_on_cpu(pin_memory=True):
        loss = model(torch.randn(64, 128, device="cuda")).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
