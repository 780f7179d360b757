"""Vision transformer as in transformers' ViTForImageClassification."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gpusim.programs.zoo.layers import Attend, heads


class Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.size = width // heads
        self.q = nn.Linear(width, width)
        self.k = nn.Linear(width, width)
        self.v = nn.Linear(width, width)
        self.out = nn.Linear(width, width)
        self.attend = Attend()

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = (heads(project(x), self.size) for project in (self.q, self.k, self.v))
        y = self.attend(query, key, value)
        return self.out(y.transpose(1, 2).reshape(x.shape))


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm_1 = nn.LayerNorm(width, eps=1e-12)
        self.attention = Attention(width, heads)
        self.norm_2 = nn.LayerNorm(width, eps=1e-12)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        x = self.attention(self.norm_1(x)) + x
        return self.mlp(self.norm_2(x)) + x


class Model(nn.Module):
    def __init__(self, layers: int, width: int, heads: int, image: int = 224, patch: int = 16, classes: int = 1000) -> None:
        super().__init__()
        self.image = image
        self.patches = nn.Conv2d(3, width, patch, stride=patch)
        self.token = nn.Parameter(torch.zeros(1, 1, width))
        self.positions = nn.Parameter(torch.zeros(1, 1 + (image // patch) ** 2, width))
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width, eps=1e-12)
        self.head = nn.Linear(width, classes)

    def inputs(self, batch: int) -> dict[str, Tensor]:
        images = torch.randn(batch, 3, self.image, self.image)
        return {"images": images, "labels": torch.randint(self.head.out_features, (batch,))}

    def embed(self, images: Tensor) -> Tensor:
        """The class token and one token a patch."""
        patches = self.patches(images).flatten(2).transpose(1, 2)
        return torch.cat((self.token.expand(len(images), -1, -1), patches), dim=1) + self.positions

    def forward(self, images: Tensor, labels: Tensor | None = None) -> Tensor:
        x = self.embed(images)
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x)[:, 0])
        return logits if labels is None else F.cross_entropy(logits, labels)
