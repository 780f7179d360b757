"""ResNet v1.5 as in transformers' ResNetForImageClassification: torchvision's network, but ReLU makes a new tensor."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def convolution(inside: int, outside: int, kernel: int, stride: int = 1, relu: bool = True) -> nn.Sequential:
    """Convolution, batch normalisation and, where asked for, ReLU."""
    layers = [nn.Conv2d(inside, outside, kernel, stride, kernel // 2, bias=False), nn.BatchNorm2d(outside)]
    return nn.Sequential(*layers, *[nn.ReLU()] * relu)


class Bottleneck(nn.Module):
    def __init__(self, inside: int, width: int, stride: int) -> None:
        super().__init__()
        self.convolutions = nn.Sequential(
            convolution(inside, width, 1), convolution(width, width, 3, stride), convolution(width, 4 * width, 1, relu=False)
        )
        changes = stride != 1 or inside != 4 * width
        self.shortcut = convolution(inside, 4 * width, 1, stride, relu=False) if changes else nn.Identity()
        self.relu = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        y = self.convolutions(x)
        y += self.shortcut(x)
        return self.relu(y)


class Model(nn.Module):
    def __init__(self, depths: Sequence[int], classes: int = 1000) -> None:
        super().__init__()
        self.stem = nn.Sequential(convolution(3, 64, 7, 2), nn.MaxPool2d(3, 2, 1))
        self.blocks = nn.ModuleList()
        inside = 64
        for stage, depth in enumerate(depths):
            width = 64 * 2**stage
            for block in range(depth):
                self.blocks.append(Bottleneck(inside, width, stride=2 if stage and not block else 1))
                inside = 4 * width
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.head = nn.Linear(inside, classes)

    def inputs(self, batch: int, image: int) -> dict[str, Tensor]:
        labels = torch.randint(self.head.out_features, (batch,))
        return {"images": torch.randn(batch, 3, image, image), "labels": labels}

    def forward(self, images: Tensor, labels: Tensor | None = None) -> Tensor:
        x = self.stem(images)
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.pool(x).flatten(1))
        return logits if labels is None else F.cross_entropy(logits, labels)
