"""An optimizer of one's own that works on `p.data` and never says no_grad."""

import torch
from torch import nn


class Momentum(torch.optim.Optimizer):
    def __init__(self, params, lr=1e-2, beta=0.9):
        super().__init__(params, {"lr": lr, "beta": beta})

    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if "velocity" not in state:
                    state["velocity"] = torch.zeros_like(p.data)
                state["velocity"].mul_(group["beta"]).add_(p.grad.data)
                decayed = p * 0.0001
                p.data.add_(state["velocity"] + decayed.data, alpha=-group["lr"])


model = nn.Sequential(nn.Linear(32, 64), nn.Tanh(), nn.Linear(64, 1)).cuda()
optimizer = Momentum(model.parameters())
for _ in range(5):
    optimizer.zero_grad()
    loss = model(torch.randn(8, 32).cuda()).pow(2).mean()
    loss.backward()
    optimizer.step()
