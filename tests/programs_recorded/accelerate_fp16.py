"""accelerate in float16, whose scaler skips steps that overflowed."""

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

set_seed(0)
accelerator = Accelerator(mixed_precision="fp16")
model, data = nn.Linear(8, 1), TensorDataset(torch.randn(32, 8), torch.randn(32, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
model, optimizer, loader = accelerator.prepare(model, optimizer, DataLoader(data, batch_size=8))
for x, y in loader:
    optimizer.zero_grad()
    with accelerator.autocast():
        loss = (model(x) - y).square().mean()
    accelerator.backward(loss)
    optimizer.step()
    if accelerator.optimizer_step_was_skipped:
        accelerator.print("skipped a step")
