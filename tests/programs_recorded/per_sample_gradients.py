"""Functional transforms: gradients of each sample by vmap over grad of a functional call."""

import torch
from torch import nn
from torch.func import functional_call, grad, vmap

model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 3)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)


def loss_of(params, x, y):
    return nn.functional.cross_entropy(functional_call(model, params, (x.unsqueeze(0),)), y.unsqueeze(0))


for _ in range(3):
    x, y = torch.randn(12, 8, device="cuda"), torch.randint(3, (12,), device="cuda")
    params = {name: p.detach() for name, p in model.named_parameters()}
    each = vmap(grad(loss_of), in_dims=(None, 0, 0))(params, x, y)
    for name, p in model.named_parameters():
        p.grad = each[name].mean(0)
    optimizer.step()
    optimizer.zero_grad()
