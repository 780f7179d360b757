"""3D-UNet as in MLPerf training (github.com/mlcommons/training, image_segmentation/pytorch): instance norm and ReLU."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def convolution(inside: int, outside: int, stride: int = 1) -> nn.Sequential:
    layers = nn.Conv3d(inside, outside, 3, stride, 1, bias=False), nn.InstanceNorm3d(outside, affine=True), nn.ReLU()
    return nn.Sequential(*layers)


class Down(nn.Sequential):
    def __init__(self, inside: int, outside: int, stride: int = 2) -> None:
        super().__init__(convolution(inside, outside, stride), convolution(outside, outside))


class Up(nn.Module):
    def __init__(self, inside: int, outside: int) -> None:
        super().__init__()
        self.upsample = nn.ConvTranspose3d(inside, outside, 2, 2)
        self.convolutions = nn.Sequential(convolution(2 * outside, outside), convolution(outside, outside))

    def forward(self, x: Tensor, skip: Tensor) -> Tensor:
        return self.convolutions(torch.cat((self.upsample(x), skip), dim=1))


class Model(nn.Module):
    def __init__(self, widths: Sequence[int] = (32, 64, 128, 256, 320, 320), classes: int = 3) -> None:
        super().__init__()
        pairs = list(pairwise(widths))
        self.down = nn.ModuleList([Down(1, widths[0], stride=1), *(Down(a, b) for a, b in pairs)])
        self.up = nn.ModuleList(Up(b, a) for a, b in reversed(pairs))
        self.blocks = nn.ModuleList([*self.down, *self.up])
        self.head = nn.Conv3d(widths[0], classes, 1)

    def inputs(self, batch: int, image: int) -> dict[str, Tensor]:
        labels = torch.randint(self.head.out_channels, (batch, image, image, image))
        return {"images": torch.randn(batch, 1, image, image, image), "labels": labels}

    def forward(self, images: Tensor, labels: Tensor | None = None) -> Tensor:
        x, skips = images, []
        for down in self.down:
            x = down(x)
            skips.append(x)
        skips.pop()
        for up in self.up:
            x = up(x, skips.pop())
        logits = self.head(x)
        return logits if labels is None else dice_and_cross_entropy(logits, labels)


def dice_and_cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """The mean of both losses; Dice leaves the background, class 0, out."""
    entropy = F.cross_entropy(logits, labels)
    predicted = torch.softmax(logits, dim=1)[:, 1:]
    target = F.one_hot(labels, logits.shape[1]).permute(0, 4, 1, 2, 3).float()[:, 1:]
    over = (2, 3, 4)
    overlap = (target * predicted).sum(over)
    dice = (2.0 * overlap + 1e-6) / (target.sum(over) + predicted.sum(over) + 1e-6)
    return ((1.0 - dice).mean() + entropy) / 2
