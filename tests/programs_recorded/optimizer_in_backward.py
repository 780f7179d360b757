"""Each parameter is stepped as soon as its gradient is there, which is then dropped."""

import torch
from torch import nn

model = nn.TransformerEncoder(nn.TransformerEncoderLayer(64, 4, 256, batch_first=True), num_layers=3).cuda()
optimizers = {p: torch.optim.Adam([p], foreach=False) for p in model.parameters()}


def update(parameter: torch.Tensor) -> None:
    optimizers[parameter].step()
    optimizers[parameter].zero_grad()


for p in model.parameters():
    p.register_post_accumulate_grad_hook(update)
for _ in range(4):
    model(torch.randn(4, 16, 64, device="cuda")).sum().backward()
