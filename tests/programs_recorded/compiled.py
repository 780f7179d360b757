"""torch.compile of a model and of a function, as decorator too."""

import torch
from torch import nn


@torch.compile
def gelu_bias(x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return nn.functional.gelu(x + bias)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner, self.bias = nn.Linear(32, 128), nn.Parameter(torch.zeros(128))
        self.outer = nn.Linear(128, 32)

    def forward(self, x):
        return self.outer(gelu_bias(self.inner(x), self.bias))


torch.set_float32_matmul_precision("high")
model = Net().cuda()
model.compile()
optimizer = torch.optim.AdamW(model.parameters())
compiled = torch.compile(model, mode="max-autotune", fullgraph=True)
for _ in range(4):
    compiled(torch.randn(16, 32, device="cuda")).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
