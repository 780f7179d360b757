"""An operator registered with torch.library: a kernel, what it returns (register_fake), and its backward."""

import torch
from torch import nn


@torch.library.custom_op("mine::scaled_add", mutates_args=())
def scaled_add(x: torch.Tensor, y: torch.Tensor, factor: float) -> torch.Tensor:
    return torch.from_numpy(x.numpy(force=True) + factor * y.numpy(force=True)).to(x.device)


@scaled_add.register_fake
def _(x, y, factor):
    return torch.empty_like(x)


scaled_add.register_autograd(
    lambda ctx, grad: (grad, grad * ctx.factor, None),
    setup_context=lambda ctx, inputs, output: setattr(ctx, "factor", inputs[2]),
)

model = nn.Linear(16, 16).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    x = torch.randn(4, 16, device="cuda")
    scaled_add(x, model(x), 0.5).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
