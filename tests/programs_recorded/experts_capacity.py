"""Experts with a fixed capacity: each takes its best tokens, as many as fit."""

import torch
from torch import nn


class Experts(nn.Module):
    def __init__(self, width: int = 32, count: int = 4, capacity: int = 24) -> None:
        super().__init__()
        self.router, self.capacity = nn.Linear(width, count), capacity
        self.up = nn.Parameter(torch.randn(count, width, 4 * width) * 0.02)
        self.down = nn.Parameter(torch.randn(count, 4 * width, width) * 0.02)

    def forward(self, x):
        weight, rows = self.router(x).softmax(-1).t().topk(self.capacity, dim=-1)
        taken = torch.bmm(nn.functional.gelu(torch.bmm(x[rows], self.up)), self.down) * weight.unsqueeze(-1)
        return torch.zeros_like(x).index_add_(0, rows.flatten(), taken.flatten(0, 1))


model = Experts().cuda()
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(3):
    model(torch.randn(64, 32, device="cuda")).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
