"""A loop of one's own with Fabric, in bfloat16."""

import torch
from lightning.fabric import Fabric
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

fabric = Fabric(accelerator="cuda", devices=1, precision="bf16-mixed")
fabric.launch()
fabric.seed_everything(1)
model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 1))
model, optimizer = fabric.setup(model, torch.optim.Adam(model.parameters()))
loader = fabric.setup_dataloaders(DataLoader(TensorDataset(torch.randn(64, 16), torch.randn(64, 1)), batch_size=16))
for x, y in loader:
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(x), y)
    fabric.backward(loss)
    fabric.clip_gradients(model, optimizer, max_norm=1.0)
    optimizer.step()
    fabric.print("loss", loss.item())
