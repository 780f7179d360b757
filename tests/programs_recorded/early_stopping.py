"""Validation after each epoch, a plateau schedule, the best weights kept, and an early end."""

import copy

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split

device = "cuda" if torch.cuda.is_available() else "cpu"
data = TensorDataset(torch.randn(96, 20), torch.randn(96, 1))
train, valid = random_split(data, [64, 32])
model = nn.Sequential(nn.Linear(20, 40), nn.ReLU(), nn.Dropout(0.2), nn.Linear(40, 1)).to(device)
optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3)
schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=2)
best, best_weights, waited = float("inf"), None, 0
for epoch in range(20):
    model.train()
    for x, y in DataLoader(train, batch_size=16, shuffle=True, num_workers=2):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x.to(device)), y.to(device))
        if torch.isnan(loss):
            raise RuntimeError("the loss is not a number")
        loss.backward()
        optimizer.step()
    model.eval()
    total = 0.0
    with torch.no_grad():
        for x, y in DataLoader(valid, batch_size=32):
            total += nn.functional.mse_loss(model(x.to(device)), y.to(device)).item()
    schedule.step(total)
    if total < best:
        best, best_weights, waited = total, copy.deepcopy(model.state_dict()), 0
        torch.save(best_weights, "best.pt")
    else:
        waited += 1
        if waited >= 3:
            break
    print(f"epoch {epoch}: {total:.4f}, best {best:.4f}")
