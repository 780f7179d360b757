"""DLRM: embedding tables, two multilayer perceptrons and the dot products between all features.

Network: github.com/facebookresearch/dlrm (dot interaction, one lookup for each table and sample).  Tables train as in FBGEMM's
batched tables and MLPerf's submissions: plain SGD on the rows that were read, inside the backward pass.  They have neither a
gradient of their own nor optimizer state; `optimizer` is that of the perceptrons.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

DENSE, RATE = 13, 0.1


def perceptron(inside: int, widths: Sequence[int], last: nn.Module) -> nn.Sequential:
    layers: list[nn.Module] = []
    for width in widths:
        layers += [nn.Linear(inside, width), nn.ReLU()]
        inside = width
    return nn.Sequential(*layers[:-1], last)


class EmbeddingTable(nn.Module):
    """Rows to look up; the gradient of a lookup is applied to its rows at once."""

    def __init__(self, rows: int, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(rows, width), requires_grad=False)

    def forward(self, index: Tensor) -> Tensor:
        rows = F.embedding(index, self.weight)
        if self.training:
            rows.requires_grad_().register_hook(lambda gradient: self.update(index, gradient))
        return rows

    @torch.no_grad()
    def update(self, index: Tensor, gradient: Tensor) -> None:
        self.weight.index_add_(0, index, gradient.to(self.weight.dtype), alpha=-RATE)


class Model(nn.Module):
    def __init__(self, rows: Sequence[int], width: int, bottom: Sequence[int], top: Sequence[int]) -> None:
        super().__init__()
        features = len(rows) + 1
        self.tables = nn.ModuleList(EmbeddingTable(r, width) for r in rows)
        self.bottom = perceptron(DENSE, bottom, nn.ReLU())
        self.top = perceptron(width + features * (features - 1) // 2, top, nn.Identity())
        self.blocks = nn.ModuleList([self.bottom, self.top])

    def inputs(self, batch: int) -> dict[str, Tensor]:
        index = torch.zeros(len(self.tables), batch, dtype=torch.long)
        return {"dense": torch.randn(batch, DENSE), "index": index, "labels": torch.rand(batch)}

    def forward(self, dense: Tensor, index: Tensor, labels: Tensor | None = None) -> Tensor:
        x = self.bottom(dense)
        features = torch.stack([x, *(table(i) for table, i in zip(self.tables, index, strict=True))], dim=1)
        products = torch.bmm(features, features.transpose(1, 2))
        row, column = torch.tril_indices(features.shape[1], features.shape[1], offset=-1, device=x.device)
        logits = self.top(torch.cat((x, products[:, row, column]), dim=1)).squeeze(1)
        return logits if labels is None else F.binary_cross_entropy_with_logits(logits, labels)
