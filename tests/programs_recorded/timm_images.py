"""A ResNet of timm with its augmentation, optimizer and average of weights."""

import timm
import timm.optim
import torch
from timm.data import Mixup
from timm.loss import SoftTargetCrossEntropy
from timm.utils import ModelEmaV3

model = timm.create_model("resnet18", pretrained=False, num_classes=10).cuda()
optimizer = timm.optim.create_optimizer_v2(model, opt="sgd", lr=0.1, weight_decay=1e-4, momentum=0.9)
average = ModelEmaV3(model, decay=0.999)
mixup, criterion = Mixup(mixup_alpha=0.2, num_classes=10), SoftTargetCrossEntropy()
for step in range(3):
    x, y = mixup(torch.randn(8, 3, 64, 64).cuda(), torch.randint(10, (8,)).cuda())
    with torch.amp.autocast("cuda", dtype=torch.float16):
        loss = criterion(model(x), y)
    optimizer.zero_grad()
    loss.backward(create_graph=False)
    optimizer.step()
    average.update(model, step=step)
