"""An image classifier in channels_last with label smoothing, OneCycle, top-1 accuracy and an evaluation."""

import torch
from torch import nn


def block(inside: int, outside: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(inside, outside, 3, padding=1, bias=False), nn.BatchNorm2d(outside), nn.ReLU(inplace=True), nn.MaxPool2d(2)
    )


torch.backends.cudnn.benchmark = True
model = nn.Sequential(block(3, 16), block(16, 32), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10))
model = model.cuda().to(memory_format=torch.channels_last)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True, weight_decay=5e-4)
schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.1, total_steps=6)
criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
right = seen = 0
for _ in range(6):
    x = torch.randn(8, 3, 32, 32).cuda().to(memory_format=torch.channels_last)
    y = torch.randint(10, (8,)).cuda()
    optimizer.zero_grad(set_to_none=True)
    scores = model(x)
    criterion(scores, y).backward()
    optimizer.step()
    schedule.step()
    right += (scores.argmax(1) == y).sum().item()
    seen += y.size(0)
    print(f"accuracy {100 * right / seen:.1f} %, lr {schedule.get_last_lr()[0]:.4f}")
model.eval()
with torch.inference_mode():
    print(model(torch.randn(4, 3, 32, 32, device="cuda")).softmax(-1).max().item())
