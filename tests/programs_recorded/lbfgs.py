"""An optimizer that evaluates the model again through a closure."""

import torch
from torch import nn

model = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 1)).cuda()
x = torch.rand(128, 2, device="cuda")
optimizer = torch.optim.LBFGS(model.parameters(), max_iter=4, history_size=5, line_search_fn=None)


def closure() -> torch.Tensor:
    optimizer.zero_grad()
    loss = (model(x) - x.prod(1, keepdim=True)).square().mean()
    loss.backward()
    return loss


for _ in range(3):
    print("loss", float(optimizer.step(closure)))
