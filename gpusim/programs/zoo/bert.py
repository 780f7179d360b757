"""BERT as in transformers' BertForMaskedLM and BertForSequenceClassification."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gpusim.programs.zoo.layers import Attend, heads, tokens


class Attention(nn.Module):
    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.size = width // heads
        self.q = nn.Linear(width, width)
        self.k = nn.Linear(width, width)
        self.v = nn.Linear(width, width)
        self.out = nn.Linear(width, width)
        self.drop = nn.Dropout(dropout)
        self.attend = Attend(dropout)

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        query, key, value = (heads(project(x), self.size) for project in (self.q, self.k, self.v))
        y = self.attend(query, key, value, mask)
        return self.drop(self.out(y.transpose(1, 2).reshape(x.shape)))


class Block(nn.Module):
    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.attention = Attention(width, heads, dropout)
        self.norm_1 = nn.LayerNorm(width, eps=1e-12)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width), nn.Dropout(dropout))
        self.norm_2 = nn.LayerNorm(width, eps=1e-12)

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        x = self.norm_1(self.attention(x, mask) + x)
        return self.norm_2(self.mlp(x) + x)


class Encoder(nn.Module):
    """The model below its heads; with `pooler` as published for classification (transformers' BertModel)."""

    where: Tensor
    types_of: Tensor

    def __init__(
        self, layers: int, width: int, heads: int, positions: int, pooler: bool, vocabulary: int = 30522,
        dropout: float = 0.1,
    ) -> None:  # fmt: skip
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width, padding_idx=0)
        self.positions = nn.Embedding(positions, width)
        self.types = nn.Embedding(2, width)
        self.norm = nn.LayerNorm(width, eps=1e-12)
        self.drop = nn.Dropout(dropout)
        self.blocks = nn.ModuleList(Block(width, heads, dropout) for _ in range(layers))
        self.pooler = nn.Linear(width, width) if pooler else None
        self.register_buffer("where", torch.arange(positions)[None], persistent=False)
        self.register_buffer("types_of", torch.zeros(1, positions, dtype=torch.long), persistent=False)

    def forward(self, ids: Tensor, keep: Tensor | None) -> Tensor:
        """keep: (batch, seq), 1 for a token and 0 for padding; without it nothing is padded."""
        seq = ids.shape[-1]
        where = self.where[:, :seq]
        types = self.types_of.gather(1, where).expand(ids.shape)
        x = self.tokens(ids) + self.types(types) + self.positions(where)
        x = self.drop(self.norm(x))
        mask = None if keep is None else keep.bool()[:, None, None, :] & torch.ones(seq, 1, dtype=torch.bool, device=ids.device)
        for block in self.blocks:
            x = block(x, mask)
        return torch.tanh(self.pooler(x[:, 0])) if self.pooler is not None else x


class Model(nn.Module):
    """Predicts masked tokens, the decoder's weight being the embedding's; or, with `classes`, the class of the whole text."""

    def __init__(
        self, layers: int, width: int, heads: int, positions: int, vocabulary: int = 30522, classes: int = 0
    ) -> None:
        super().__init__()
        self.classes, self.vocabulary = classes, vocabulary
        self.encoder = Encoder(layers, width, heads, positions, pooler=classes > 0, vocabulary=vocabulary)
        self.blocks = self.encoder.blocks
        if classes:
            self.transform: nn.Module = nn.Dropout(0.1)
            self.head = nn.Linear(width, classes)
            return
        self.transform = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.LayerNorm(width, eps=1e-12))
        self.head = nn.Linear(width, vocabulary)
        self.head.weight = self.encoder.tokens.weight

    def inputs(self, batch: int, seq: int, padding: bool) -> dict[str, Tensor]:
        labels = torch.randint(self.classes, (batch,)) if self.classes else tokens(self.vocabulary, batch, seq)
        keep = {"keep": torch.ones(batch, seq, dtype=torch.long)} if padding else {}
        return {"ids": tokens(self.vocabulary, batch, seq), "labels": labels, **keep}

    def forward(self, ids: Tensor, keep: Tensor | None = None, labels: Tensor | None = None) -> Tensor:
        logits = self.head(self.transform(self.encoder(ids, keep)))
        if labels is None:
            return logits
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), labels.view(-1))
