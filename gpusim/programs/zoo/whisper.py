"""Whisper as in transformers' WhisperForConditionalGeneration: 30 s of sound, and the tokens that are written."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gpusim.programs.zoo.layers import Attend, heads, tokens

FRAMES, POSITIONS = 3000, 1500


class Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.size = width // heads
        self.q, self.k, self.v = nn.Linear(width, width), nn.Linear(width, width, bias=False), nn.Linear(width, width)
        self.out = nn.Linear(width, width)
        self.attend = Attend()

    def forward(self, x: Tensor, other: Tensor | None = None, causal: bool = False) -> Tensor:
        seen = x if other is None else other
        query, key, value = heads(self.q(x), self.size), heads(self.k(seen), self.size), heads(self.v(seen), self.size)
        y = self.attend(query, key, value, causal=causal)
        return self.out(y.transpose(1, 2).reshape(x.shape))


class Block(nn.Module):
    def __init__(self, width: int, heads: int, decodes: bool) -> None:
        super().__init__()
        self.norm_1, self.to_self = nn.LayerNorm(width), Attention(width, heads)
        self.decodes = decodes
        if decodes:
            self.norm_2, self.to_sound = nn.LayerNorm(width), Attention(width, heads)
        self.norm_3 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor, sound: Tensor | None = None) -> Tensor:
        x = x + self.to_self(self.norm_1(x), causal=self.decodes)
        if self.decodes:
            x = x + self.to_sound(self.norm_2(x), sound)
        return x + self.mlp(self.norm_3(x))


class Model(nn.Module):
    def __init__(
        self, layers: int, width: int, heads: int, decoder: int = 0, mels: int = 80, vocabulary: int = 51865,
        positions: int = 448,
    ) -> None:  # fmt: skip
        super().__init__()
        self.mels = mels
        self.conv_1 = nn.Conv1d(mels, width, 3, padding=1)
        self.conv_2 = nn.Conv1d(width, width, 3, stride=2, padding=1)
        self.where = nn.Embedding(POSITIONS, width).requires_grad_(False)
        self.encoder = nn.ModuleList(Block(width, heads, decodes=False) for _ in range(layers))
        self.norm_1 = nn.LayerNorm(width)
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(positions, width)
        self.decoder = nn.ModuleList(Block(width, heads, decodes=True) for _ in range(decoder or layers))
        self.norm_2 = nn.LayerNorm(width)
        self.blocks = nn.ModuleList([*self.encoder, *self.decoder])
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.tokens.weight

    def inputs(self, batch: int, seq: int) -> dict[str, Tensor]:
        ids, labels = (tokens(self.tokens.num_embeddings, batch, seq) for _ in range(2))
        return {"sound": torch.randn(batch, self.mels, FRAMES), "ids": ids, "labels": labels}

    def listen(self, sound: Tensor) -> Tensor:
        """What the decoder attends to."""
        x = F.gelu(self.conv_2(F.gelu(self.conv_1(sound)))).permute(0, 2, 1)
        x = x + self.where(torch.arange(POSITIONS, device=x.device))
        for block in self.encoder:
            x = block(x)
        return self.norm_1(x)

    def forward(self, sound: Tensor, ids: Tensor, labels: Tensor | None = None) -> Tensor:
        heard = self.listen(sound)
        x = self.tokens(ids) + self.positions(torch.arange(ids.shape[-1], device=ids.device))
        for block in self.decoder:
            x = block(x, heard)
        logits = self.head(self.norm_2(x))
        return logits if labels is None else F.cross_entropy(logits.view(-1, logits.shape[-1]), labels.reshape(-1))
