"""Activation checkpointing: per block, a sequential model in segments, and by a policy for single operators."""

import functools

import torch
from torch import nn
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    checkpoint_sequential,
    create_selective_checkpoint_contexts,
)


def policy(ctx, op, *args, **kwargs):
    return CheckpointPolicy.MUST_SAVE if op is torch.ops.aten.addmm.default else CheckpointPolicy.PREFER_RECOMPUTE


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        block = lambda: nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Dropout(0.1), nn.Linear(256, 64))  # noqa: E731
        self.first, self.second = block(), block()
        self.rest = nn.Sequential(*(block() for _ in range(4)))

    def forward(self, x):
        x = checkpoint(self.first, x, use_reentrant=False)
        contexts = functools.partial(create_selective_checkpoint_contexts, policy)
        x = checkpoint(self.second, x, use_reentrant=False, context_fn=contexts)
        return checkpoint_sequential(self.rest, 2, x, use_reentrant=True)


model = Net().cuda()
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(3):
    model(torch.randn(16, 64, device="cuda")).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
